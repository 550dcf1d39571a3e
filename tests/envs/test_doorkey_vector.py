"""DoorKeyVectorEnv equals single environments and follows Gymnasium's interface."""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rrl_tf.envs import (
    DoorKeyStart,
    DoorKeyVectorEnv,
    SeededVectorEnv,
    enumerate_starts,
    make_doorkey,
)
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only

START = DoorKeyStart(size=5, wall=2, door=1, key=(1, 2), agent=(1, 1), direction=1)
SOLUTION = (3, 0, 4, 2, 2, 1, 2, 2)  # pick up, left, toggle, ahead, ahead, right, ahead, ahead


def assert_same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (tuple, list)):
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


def start_of(vector, i):
    """Return the start of the current episode of an environment."""
    size, wall, door, _, key_x, key_y, x, y, direction, steps = (
        int(column[i]) for column in vector.state
    )
    assert steps == 0
    return DoorKeyStart(size, wall, door, (key_x, key_y), (x, y), direction)


class Followed(SeededVectorEnv):
    """A vector of single environments whose episodes start like those of another vector."""

    def __init__(self, make_env, followed, **arguments):
        super().__init__(make_env, followed.num_envs, 0, **arguments)
        self.followed = followed

    def _begin(self, i, options):
        return super()._begin(i, {"start": start_of(self.followed, i)})


@pytest.fixture(scope="module")
def trio():
    """Return a vector of three environments, compiled once for several tests."""
    return DoorKeyVectorEnv(5, 3, max_steps=8)


@pytest.mark.parametrize(
    ("observation", "reset_on_truncation"), [("view", True), ("compass", False)]
)
def test_equals_environments_stepped_one_by_one(observation, reset_on_truncation):
    options = {"observation": observation, "reward": "book", "max_steps": 60}
    vector = DoorKeyVectorEnv(5, 12, 1, **options, reset_on_truncation=reset_on_truncation)
    single = Followed(
        lambda: make_doorkey(5, **options), vector, reset_on_truncation=reset_on_truncation
    )
    assert vector.observation_space == single.observation_space
    assert vector.action_space == single.action_space
    rng, ended = np.random.default_rng(0), np.zeros(2, int)
    assert_same(vector.reset(options={"starts": [START] * 12}), single.reset())
    for t in range(130):
        actions = rng.choice([0, 1, 2, 2, 2, 3, 4, 4], size=12)
        if t < len(SOLUTION):
            actions[:6] = SOLUTION[t]
        outcome = vector.step(actions)
        expected = single.step(actions)
        info, expected_info = outcome[-1], expected[-1]
        returns = [each["episode"].pop("return") for each in (info, expected_info)]
        np.testing.assert_allclose(*returns, atol=1e-12)
        assert_same(outcome, expected)
        ended += outcome[2].sum(), outcome[3].sum()
    assert ended[0] > 5
    assert (ended[1] > 5) == reset_on_truncation


def test_is_a_gymnasium_vector_environment(trio):
    vector = trio
    assert isinstance(vector, gymnasium.vector.VectorEnv)
    assert vector.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    assert vector.unwrapped is vector
    assert vector.observation_space == batch_space(vector.single_observation_space, 3)
    assert vector.action_space == batch_space(vector.single_action_space, 3)
    assert vector.single_observation_space.shape == (7, 7, 4)
    assert vector.action_names == ("left", "right", "forward", "pickup", "toggle")
    observation, info = vector.reset(seed=3, options={})
    assert vector.observation_space.contains(observation)
    assert info == {}
    vector.action_space.seed(0)
    for _ in range(5):
        observation, reward, terminated, truncated, info = vector.step(vector.action_space.sample())
        assert vector.observation_space.contains(observation)
        assert vector.observation_space.contains(info["final_obs"])
        assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float32, bool, bool)
        assert reward.shape == terminated.shape == truncated.shape == (3,)


def test_gymnasium_wrappers_can_be_applied(trio):
    clipped = gymnasium.wrappers.vector.ClipReward(trio, max_reward=0.05)
    vector = gymnasium.wrappers.vector.DictInfoToList(clipped)
    vector.reset(options={"starts": [START] * 3})
    for action in SOLUTION:
        _, reward, *_, infos = vector.step(np.array([action, 0, 1]))
    assert [info["episode"]["success"] for info in infos] == [True, False, False]
    assert reward.tolist() == [np.float32(0.05), 0, 0]


def test_reset_options_hold_for_one_episode(trio):
    starts, vector = [START, *enumerate_starts(5)[:2]], trio
    expected = [
        make_doorkey(observation="compass").reset(options={"start": start})[0] for start in starts
    ]
    assert_same(vector.reset(options={"starts": starts})[0], np.stack(expected))
    assert [start_of(vector, i) for i in range(3)] == starts
    for action in SOLUTION:
        _, reward, terminated, truncated, info = vector.step([action, 0, 0])
    assert terminated.tolist() == [True, False, False]
    assert truncated.tolist() == [False, True, True]
    assert reward[0] == np.float32(0.1)
    assert {key: value.tolist() for key, value in info["episode"].items()} == {
        "return": [pytest.approx(0.1), 0, 0],
        "length": [8, 8, 8],
        "success": [True, False, False],
        "_success": [True, True, True],
    }
    drawn = []
    for _ in range(5):
        drawn.append([start_of(vector, i) for i in range(3)])
        vector.reset()
    assert len({*map(tuple, drawn)}) == 5


def test_enumerated_starts_are_complete():
    starts = enumerate_starts(6)[::200]
    vector = DoorKeyVectorEnv(6, 40, starts=starts)
    vector.reset()
    assert {start_of(vector, i) for i in range(40)} == {*starts}


def test_reset_continues_and_a_seed_restarts(trio):
    vector = trio
    first, second = vector.reset(seed=0)[0], vector.reset()[0]
    assert np.any(first != second)
    assert_same(vector.reset(seed=0)[0], first)
    assert_same(vector.reset()[0], second)
    assert_same(DoorKeyVectorEnv(5, 3, seed=0, max_steps=8).reset()[0], first)
    others = {vector.reset(seed=seed)[0].tobytes() for seed in (0, 1, 2**32, 2**64, 2**200 + 1)}
    assert len(others) == 5


def test_equal_without_xla(trio):
    vectors = [trio, DoorKeyVectorEnv(5, 3, max_steps=8, jit_compile=False)]
    assert_same(*(vector.reset(seed=7) for vector in vectors))
    for actions in np.random.default_rng(0).integers(5, size=(12, 3)):
        assert_same(*(vector.step(actions) for vector in vectors))


def test_returned_observations_are_not_overwritten(trio):
    kept = [trio.reset()[0]]
    copies = [kept[0].copy()]
    for _ in range(10):
        observation, *_, info = trio.step([0, 2, 1])
        kept += [observation, info["final_obs"]]
        copies += [observation.copy(), info["final_obs"].copy()]
        observation[:] = 0  # changes to a returned array have no effect
        kept[-2] = copies[-2]
    assert_same(kept, copies)


def test_close_marks_the_environment_closed():
    vector = DoorKeyVectorEnv(5, 2)
    vector.close()
    assert vector.closed


def test_wrong_use_raises():
    for arguments, message in (
        ((4, 2), "`size` must be from 5 to 255; received 4"),
        ((5, 0), "`num_envs` must be a positive integer; received 0"),
        ((5, 2, -1), "`seed` must be an integer of at least 0; received -1"),
        ((5, 2, "a"), "`seed` must be an integer of at least 0; received 'a'"),
        ((5, 2, 0, "full"), "`observation` must be one of .*received 'full'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            DoorKeyVectorEnv(*arguments)
    vector = DoorKeyVectorEnv(5, 2)
    for unready in (lambda: vector.step([0, 0]), lambda: vector.state):
        with pytest.raises(ResetNeeded):
            unready()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -3}, "seed.* must be an integer of at least 0; received -3"),
        ({"options": {"start": START}}, r"the only option .* is 'starts'; received \['start'\]"),
        ({"options": {"starts": [START]}}, r"a list of 3 starts, .*; received \[DoorKeyStart"),
        ({"options": {"starts": START}}, "a list of 3 starts, .*; received DoorKeyStart"),
        (
            {"options": {"starts": [START, START, 5]}},
            "a DoorKeyStart of size 5; received 5",
        ),
        (
            {"options": {"starts": enumerate_starts(6)[:3]}},
            r"must be a DoorKeyStart of size 5; received DoorKeyStart\(size=6",
        ),
    ],
    ids=str,
)
def test_a_failed_reset_changes_nothing(trio, arguments, message):
    trio.reset()
    before = np.array(trio.state)
    with pytest.raises(InvalidInput, match=message):
        trio.reset(**arguments)
    np.testing.assert_array_equal(np.array(trio.state), before)


def test_invalid_actions_raise_and_change_nothing(trio):
    trio.reset()
    before = np.array(trio.state)
    for actions in ([0] * 2, [0] * 4, 0, [[0] * 3], [0.0] * 3, [True] * 3, ["a", "b", "c"]):
        with pytest.raises(InvalidInput, match="`actions` must be 3 integers; received"):
            trio.step(actions)
    for action in (-1, 5):
        with pytest.raises(InvalidInput, match=f"an action must be 0 to 4; received {action}"):
            trio.step([0, action, 0])
    np.testing.assert_array_equal(np.array(trio.state), before)
