import gymnasium
import numpy as np
import pytest

from rrl_tf.agents.evaluation import evaluate
from rrl_tf.envs import enumerate_starts, make_doorkey

RESETS = [{"options": {"start": start}} for start in enumerate_starts(5)]


def optimal_actions(start):
    """A shortest solution of a start, by breadth-first search over real environments."""
    from collections import deque

    env = make_doorkey(5)

    def replay(actions):
        env.reset(options={"start": start})
        result = None
        for action in actions:
            result = env.step(action)
        return result

    replay(())
    queue, seen = deque([()]), {env.get_wrapper_attr("state_key")()}
    while queue:
        actions = queue.popleft()
        for action in range(5):
            result = replay((*actions, action))
            if result[2]:
                return (*actions, action)
            key = env.get_wrapper_attr("state_key")()
            if key not in seen:
                seen.add(key)
                queue.append((*actions, action))
    raise AssertionError("no solution")


def test_a_scripted_solution_counts_as_solved_in_its_length():
    start = enumerate_starts(5)[7]
    solution = optimal_actions(start)
    script = iter(solution)
    result = evaluate(
        lambda observation: [next(script)],
        lambda: make_doorkey(5, reward="success"),
        [{"options": {"start": start}}],
    )
    assert result.success.tolist() == [True]
    assert result.length.tolist() == [len(solution)]
    assert result.reward.tolist() == [1.0]
    assert result.loop.tolist() == [False]
    assert result.summary()["length"] == len(solution)


def test_turning_on_the_spot_is_a_loop_of_four():
    result = evaluate(lambda observation: np.zeros(len(observation), int), make_doorkey, RESETS)
    assert result.loop.all()
    assert not result.success.any()
    assert (result.length == 4).all()
    assert "length" not in result.summary()


class Ring(gymnasium.Env):
    """Three places in a ring, for four steps or without an end; every step earns 1."""

    observation_space = gymnasium.spaces.Box(0, 2, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, tells, time_limit):
        self.tells, self.time_limit = tells, time_limit

    def reset(self, *, seed=None, options=None):
        self.place = self.steps = 0
        return np.zeros(1, "float32"), {}

    def step(self, action):
        self.place, self.steps = (self.place + 1) % 3, self.steps + 1
        over = self.steps == self.time_limit
        info = {"success": action == 1} if self.tells and over else {}
        return np.full(1, self.place, "float32"), 1.0, False, over, info

    def state_key(self):
        return self.place


@pytest.mark.parametrize(
    ("tells", "time_limit", "success"),
    [(True, 4, [False] * 3), (False, 4, None), (True, None, None)],
)
def test_episodes_that_all_end_in_a_loop_are_failures_where_success_is_told(
    tells, time_limit, success
):
    result = evaluate(lambda o: np.zeros(len(o), int), lambda: Ring(tells, time_limit), [{}] * 3)
    assert result.loop.all() and result.length.tolist() == [3, 3, 3]
    assert (None if result.success is None else result.success.tolist()) == success
    assert ("success" in result.summary()) == (success is not None)


def test_random_play_is_no_loop_and_solves_what_it_solves():
    rng = np.random.default_rng(0)
    result = evaluate(
        lambda observation: rng.integers(5, size=len(observation)),
        make_doorkey,
        RESETS,
        epsilon=0.5,
    )
    assert not result.loop.any()
    # About 29 % of random episodes are solved within the time limit of 250 steps.
    assert 0.1 < result.success.mean() < 0.5
    assert (result.length[~result.success] == 250).all()
    assert (result.reward[result.success] > 0).all()
    assert (result.reward[~result.success] == 0).all()


def test_the_seed_decides_the_random_actions():
    def play(seed):
        return evaluate(
            lambda o: np.full(len(o), 2), make_doorkey, RESETS[:5], epsilon=0.9, seed=seed
        ).length.tolist()

    assert play(1) == play(1)
    assert play(1) != play(2)


class Counter(gymnasium.Env):
    """Nothing but an observation, a reward and an end."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.left = seed
        return np.array([self.left], "float32"), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], "float32"), 0.5, self.left == 0, False, {}


def test_any_environment_can_be_evaluated():
    result = evaluate(
        lambda o: np.zeros(len(o), int), Counter, [{"seed": seed} for seed in (2, 4, 9)]
    )
    assert result.success is None and result.loop is None
    assert result.reward.tolist() == [1.0, 2.0, 4.5]
    assert result.summary() == {"return": 2.5, "length": 5.0}


def test_who_tells_only_of_successes_has_failed_elsewhere():
    class Lucky(Counter):
        def step(self, action):
            *result, info = super().step(action)
            return *result, {"success": True} if self.first == 4 and result[2] else info

        def reset(self, *, seed=None, options=None):
            self.first = seed
            return super().reset(seed=seed)

    result = evaluate(
        lambda o: np.zeros(len(o), int), Lucky, [{"seed": seed} for seed in (2, 4, 9)]
    )
    assert result.success.tolist() == [False, True, False]
    assert result.summary()["length"] == 4.0


def test_nothing_to_play_is_an_error():
    with pytest.raises(ValueError, match="at least one start"):
        evaluate(lambda o: o, make_doorkey, [])
