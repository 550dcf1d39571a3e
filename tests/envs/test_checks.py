"""Values outside the declared spaces raise one clear error, wherever they enter."""

import functools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv

from rrl_tf.agents import CurriculumEnv, GraphEnvs, ReplayBuffer, SequenceReplayBuffer, evaluate
from rrl_tf.envs import SeededVectorEnv
from rrl_tf.envs.checks import REWARD, TERMINATED, CheckedEnv
from rrl_tf.envs.preprocessing import as_float
from rrl_tf.envs.task import Level, ReportSuccess, Task
from rrl_tf.errors import InvalidInput
from rrl_tf.offline import Player, load_episodes, record_episodes

FLOATS, BYTES = Box(-1, 1, (2,)), Box(0, 255, (2,), np.uint8)


class Scripted(gymnasium.Env):
    """Environment with given results at resets or in the second step, and valid ones otherwise."""

    action_space = Discrete(2)

    def __init__(self, space=FLOATS, first=None, **second):
        self.observation_space, self.first, self.second = space, first, second
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._valid() if self.first is None else self.first, {}

    def step(self, action):
        self.steps += 1
        self.actions.append(action)
        result = {
            "observation": self._valid(),
            "reward": 1.0,
            "terminated": self.steps == 3,
            "truncated": False,
            "info": {},
        }
        return tuple((result | (self.second if self.steps == 2 else {})).values())

    def _valid(self):
        return np.zeros(2, getattr(self.observation_space, "dtype", None))


WRONG = [
    (BYTES, np.array([1, 300]), r"uint8 of shape \(2,\); received int64 of shape \(2,\) with 300"),
    (BYTES, np.array([-1, 0]), "received int64 .* with -1"),
    (BYTES, np.array([0.5, 1]), "received float64 .* with 0.5"),
    (BYTES, np.array([np.nan, 1]), "received float64 .* with nan"),
    (FLOATS, np.zeros((1, 1), np.float32), r"\(2,\); received float32 of shape \(1, 1\)"),
    (FLOATS, np.float32(0), r"\(2,\); received float32 of shape \(\)"),
    (FLOATS, np.zeros(3, np.float32), r"\(2,\); received float32 of shape \(3,\)"),
    (FLOATS, np.array([0, np.nan], np.float32), r"finite float32 .* of shape \(2,\) with nan"),
    (FLOATS, np.array([0, -np.inf], np.float32), "with -inf"),
    (FLOATS, np.array([0, np.inf], np.float16), "float16 .* with inf"),
    (FLOATS, np.array([0, 1e39]), r"received float64 .* with 1e\+39"),
    (FLOATS, np.array([0, 1j]), "received complex128"),
    (FLOATS, np.array(["0", "1"]), "received <U1"),
    (FLOATS, None, "received object"),
    (FLOATS, [[0.0], [0.0, 1.0]], "received list"),
]
RIGHT = [
    (BYTES, np.array([1, 255])),
    (BYTES, np.array([1.0, 255.0])),
    (BYTES, [True, False]),
    (FLOATS, np.array([0, 1])),
    (FLOATS, np.array([0.1, 1e-50])),
    (FLOATS, [np.float16(0.5), 1]),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("space", "value", "message"), WRONG)
def test_a_wrong_observation_raises_in_reset_and_step(space, value, message):
    def vector(**results):
        envs = iter([Scripted(space), Scripted(space, **results)])
        return SeededVectorEnv(lambda: next(envs), 2, seed=0)

    if value is not None:
        with pytest.raises(InvalidInput, match=f"{message}.* from environment 1 in step 0 of"):
            vector(first=value).reset()
    env = vector(observation=value)
    env.reset()
    env.step([0, 0])
    with pytest.raises(InvalidInput, match=f"{message}.* from environment 1 in step 2 of epis"):
        env.step([0, 0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("space", "value"), RIGHT)
def test_a_conversion_that_keeps_the_numbers_is_accepted(space, value):
    env = SeededVectorEnv(lambda: Scripted(space, first=value, observation=value), 2, seed=0)
    expected = np.asarray(value, space.dtype)
    first, _ = env.reset()
    env.step([0, 0])
    second, *_ = env.step([0, 0])
    for found in (first, second):
        assert found.dtype == space.dtype
        np.testing.assert_array_equal(found, [expected, expected])


@pytest.mark.filterwarnings("ignore")  # NumPy's warnings
@pytest.mark.parametrize(("space", "value", "message"), WRONG)
def test_wrong_shapes_and_dtypes_also_raise_in_gymnasium(space, value, message):
    """Our checks of values are stricter than those of `SyncVectorEnv`, which accepts nan."""
    if np.isscalar(value) or value is None or "finite" in message or "inf" in message:
        return
    if isinstance(value, np.ndarray) and value.dtype == float and space is FLOATS:
        return
    with pytest.raises((TypeError, ValueError)):
        SyncVectorEnv([functools.partial(Scripted, space, first=value)]).reset()


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0, 3.0], 1.0, None, [True], []])
def test_a_batch_has_one_number_of_each_environment(values):
    for check in (REWARD, TERMINATED):
        with pytest.raises(InvalidInput, match=f"^{check.name} must be 2 values, .*; received"):
            check.batch(values, 2, str)


def test_actions_must_be_integers():
    env = SeededVectorEnv(Scripted, 2, seed=0)
    env.reset()
    for actions, message in (
        ([0, 1.9], "with 1.9 from environment 1 in step 0"),
        ([np.nan, 0], "with nan from environment 0"),
        ([[0], [1]], r"shape \(1,\) from environment 0"),
    ):
        with pytest.raises(InvalidInput, match=f"`actions` must be int64 .*{message}"):
            env.step(actions)
    env.step(np.array([1.0, 0.0]))
    assert [each.actions for each in env.envs] == [[1], [0]]


ONES = [np.array([1.0]), np.array([[1]]), np.array(1.0), np.float16(1), 1, True, tf.constant(1.0)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("one", ONES)
def test_rewards_and_flags_of_size_one_are_accepted(one, tmp_path):
    names = ("reward", "terminated")
    make_env = functools.partial(Scripted, info={"success": one}, **dict.fromkeys(names, one))
    vector = SeededVectorEnv(lambda: ReportSuccess(make_env(), 2.0), 2, seed=0)
    vector.reset()
    vector.step([0, 0])
    _, reward, terminated, truncated, info = vector.step([0, 0])
    assert reward.tolist() == [1, 1] and terminated.all() and not truncated.any()
    assert info["episode"]["success"].all() and info["episode"]["return"].tolist() == [2, 2]
    result = evaluate(lambda observation: np.zeros(len(observation)), make_env, [{}, {}])
    assert result.returns.tolist() == [2, 2] and result.success.all()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reward", np.ones(2), r"the reward must be .*received float64 of shape \(2,\)"),
        ("reward", np.zeros(0), r"the reward must be .*received float64 of shape \(0,\)"),
        ("reward", None, "the reward must be .*received object"),
        ("reward", "1", "the reward must be .*received <U1"),
        ("reward", np.array([np.nan]), "the reward must be .* with nan"),
        ("reward", 10**400, "the reward must be .*received object"),
        ("terminated", np.ones(2), r"`terminated` must be bool .*received float64 of shape \(2,\)"),
        ("terminated", 2, "`terminated` must be bool .* with 2"),
        ("truncated", np.array([True, False]), r"`truncated` must be .*bool of shape \(2,\)"),
        ("truncated", np.nan, "`truncated` must be bool .* with nan"),
        ("info", {"success": np.ones(2)}, r"`info\['success'\]` must be bool .*\(2,\) from"),
    ],
)
def test_other_rewards_and_flags_raise(name, value, message, tmp_path):
    make_env = functools.partial(Scripted, **{name: value})
    for make in (make_env, lambda: ReportSuccess(make_env(), 2.0)):
        vector = SeededVectorEnv(make, 1, seed=0)
        vector.reset()
        vector.step([0])
        with pytest.raises(InvalidInput, match=message):
            vector.step([0])
        with pytest.raises(InvalidInput, match=message):
            evaluate(lambda observation: np.zeros(len(observation), int), make, [{}])


def test_evaluation_checks_observations_and_actions():
    for results in ({"first": [0, np.nan]}, {"observation": np.zeros((1, 1))}):
        with pytest.raises(
            InvalidInput, match=r"finite float32 of shape \(2,\).* from Scripted in"
        ):
            evaluate(lambda x: [0], functools.partial(Scripted, **results), [{}])
    with pytest.raises(InvalidInput, match=r"the action must be int64 .* with 1\.9"):
        evaluate(lambda x: [1.9], Scripted, [{}])


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # warnings of h5py and Minari
def test_recordings_contain_what_online_play_sees(tmp_path):
    class Rounded(Scripted):
        def reset(self, **options):
            return super().reset(**options)[0] + 0.1, {}

        def step(self, action):
            observation, _, *rest = super().step(action)
            return np.float64(observation) + 0.1, np.array([0.1]), *rest

    player = [Player("random", level=1.0)]
    (episode,) = load_episodes(
        f"minari:{record_episodes(tmp_path, 'me/one-v0', Rounded, player, 1)}"
    ).episodes
    assert episode.observations.dtype == np.float32
    np.testing.assert_array_equal(episode.observations, np.full((4, 2), np.float32(0.1)))
    np.testing.assert_array_equal(episode.rewards, np.float32([0.1] * 3))
    for number, (space, value, message) in enumerate(WRONG[:8]):
        make_env = functools.partial(Scripted, space, observation=value)
        with pytest.raises(InvalidInput, match=f"{message}.* from Scripted in step 2"):
            record_episodes(tmp_path, f"me/wrong-v{number}", make_env, player, 1)


@pytest.mark.parametrize("sequences", [False, True])
def test_replay_buffers_check_what_is_added(sequences):
    common = {"num_envs": 2, "jit_compile": False}
    make = ReplayBuffer
    if sequences:
        make = functools.partial(SequenceReplayBuffer, length=2, period=1, memory_size=3)
    zeros, no = np.zeros((2, 2)), np.zeros(2, bool)
    state = {"memory": np.zeros((2, 3)), "previous_action": [0, 0], "previous_reward": [0, 0]}

    def add(dtype, **changes):
        replay = make(20, (2,), dtype, **common)
        step = {
            "observation_t": zeros,
            "action_t": [0, 1],
            "reward_t": [0, 1],
            "terminated": no,
            "truncated": no,
            "observation_tp1": zeros,
            "state": state if sequences else {},
        }
        replay.add(**(step | changes))
        return replay.get_state()

    assert add("uint8", observation_t=zeros + 200)["observation_t"].max() == 200
    with_nan = np.array([[0, 0], [0, np.nan]])
    cases = [
        ("uint8", {"observation_t": zeros + 300}, "with 300.0 from environment 0 in step 1"),
        ("uint8", {"observation_tp1": zeros + 0.5}, "with 0.5"),
        ("float32", {"observation_t": np.zeros((2, 1))}, r"received float64 of shape \(1,\)"),
        ("float32", {"observation_t": with_nan}, "with nan from environment 1 in step 1"),
        ("float32", {"action_t": [0, 1.9]}, "`action_t` must be int32 .* with 1.9 from env"),
        ("float32", {"action_t": [0]}, "`action_t` must be 2 values"),
        ("float32", {"action_t": [0, 2**40]}, "`action_t` must be int32"),
        ("float32", {"reward_t": [0, np.inf]}, "`reward_t` must be finite .* with inf"),
        ("float32", {"terminated": [0, 2]}, "`terminated` must be bool .* with 2"),
    ]
    if sequences:
        cases.append(
            ("float32", {"state": state | {"memory": np.full((2, 3), np.nan)}}, "`memory`")
        )
    for dtype, changes, message in cases:
        with pytest.raises(InvalidInput, match=message):
            add(dtype, **changes)


def test_replay_checks_shapes_and_dtypes_in_a_graph():
    replay = ReplayBuffer(20, (2,), "float32", num_envs=2, jit_compile=False)

    def add(observation, action):
        no = tf.zeros((2,), tf.bool)
        replay.add(observation, action, tf.zeros((2,)), no, no, observation)

    tf.function(add)(tf.zeros((2, 2)), tf.constant([0, 1]))
    with pytest.raises(InvalidInput, match=r"`action_t` must be int32 .*; received float32"):
        tf.function(add, autograph=False)(tf.zeros((2, 2)), tf.constant([0, 1.9]))
    with pytest.raises(InvalidInput, match=r"\(2, 2\); received float32 of shape \(2, 1\)"):
        tf.function(add, autograph=False)(tf.zeros((2, 1)), tf.constant([0, 1]))
    assert len(replay) == 2


def test_bounds_that_differ_in_the_centre_are_refused():
    """NumPy prints only the corners of arrays above 1,000 elements."""
    high = np.ones((40, 40), np.float32)
    high[0, 0] = 3  # otherwise, `repr` shows one number
    space = Box(0, high.copy())
    high[20, 20] = 2
    makes = [functools.partial(Scripted, each) for each in (space, Box(0, high))]
    with pytest.raises(InvalidInput, match=r"task 'mixed' must contain .* Scripted: \(40, 40\)"):
        Task("mixed", (Level("", *makes),), as_float(space))
    envs = [make() for make in makes]
    for combine in (CurriculumEnv, functools.partial(GraphEnvs, num_envs=2)):
        with pytest.raises(InvalidInput, match="equal spaces and bounds; received Scripted: "):
            combine(envs)


def test_spaces_without_arrays_are_refused():
    env = Scripted()
    env.observation_space = gymnasium.spaces.Dict({"view": FLOATS})
    for make in (CheckedEnv, lambda env: SeededVectorEnv(lambda: env, 1, seed=0)):
        with pytest.raises(
            InvalidInput, match=r"observation space must have a shape .*received Di"
        ):
            make(env)
