"""Tasks: checks, attributes, and tasks from any Gymnasium environment."""

import functools
import itertools
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence
from minigrid.envs import GoToDoorEnv, MemoryEnv
from minigrid.wrappers import (
    DictObservationSpaceWrapper,
    FullyObsWrapper,
    ImgObsWrapper,
    ViewSizeWrapper,
)

from rrl_tf.envs import (
    Level,
    Preprocessor,
    Task,
    box_world_task,
    doorkey_task,
    gymnasium_task,
    make_doorkey,
    memory_task,
)
from rrl_tf.envs.preprocessing import as_float
from rrl_tf.envs.task import ReportSuccess
from rrl_tf.errors import InvalidInput


class Walk(gymnasium.Env):
    """Environment whose reward is the action; an episode ends after five steps."""

    metadata = {"render_modes": []}

    def __init__(self, observation_space=None, action_space=None, render_mode=None, told=False):
        # Not `or`, which would call `len` of a MultiDiscrete.
        self.observation_space = (
            Box(-1, 1, (3,)) if observation_space is None else observation_space
        )
        self.action_space = Discrete(2) if action_space is None else action_space
        self.told = told

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.place += 1
        terminated = self.place == 5
        info = {"success": False} if self.told and terminated else {}
        return self.observation_space.sample(), float(action), terminated, False, info


def success_of(env, actions):
    env.reset(seed=0)
    for action in actions:
        *_, info = env.step(action)
    return info.get("success")


def test_success_is_from_info_or_else_from_the_return():
    task = gymnasium_task(Walk, success_return=3.0)
    assert success_of(task.make_env(), [1, 1, 1, 0, 0]) is True
    assert success_of(task.make_test_env(), [1, 1, 0, 0, 0]) is False
    told = gymnasium_task(functools.partial(Walk, told=True), success_return=3.0)
    assert success_of(told.make_env(), [1] * 5) is False
    assert success_of(gymnasium_task(Walk).make_env(), [1] * 5) is None


def test_a_reset_restarts_the_return():
    env = ReportSuccess(Walk(), 5.0)
    assert success_of(env, [1] * 5) is True
    assert success_of(env, [1, 1, 1, 1, 0]) is False


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (Box(-1, 1, (3,)), (3,)),
        (Box(0, 255, (3,), np.uint8), (3,)),
        (Box(0, 3, (4, 5, 2), np.uint8), (4, 5, 8)),
        (Box(0, 255, (40, 30, 3), np.uint8), (40, 30, 3)),
        (Box(-np.inf, np.inf, (4, 5, 2)), (4, 5, 2)),
        (Box(0, 3, (4, 5), np.uint8), (4, 5, 4)),
        (Box(0, 3, (), np.float32), (1,)),
        (Discrete(6), (6,)),
        (Discrete(6, start=-2), (6,)),
        (MultiDiscrete([2, 3]), (5,)),
        (MultiDiscrete([[2, 3]]), (1, 2, 3)),
        (MultiBinary(4), (4,)),
        (Dict({"a": Box(0, 1, (2, 2))}), (2, 2, 1)),
    ],
)
def test_observations_are_preprocessed_by_their_space(space, shape):
    task = gymnasium_task(functools.partial(Walk, space))
    observation, _ = task.make_env().reset(seed=0)
    prepared = np.asarray(task.preprocessor(observation[None]))
    assert prepared.shape == (1, *shape) == (1, *task.preprocessor.shape)
    assert prepared.dtype == np.float32
    assert task.observation_space.contains(observation)


def test_an_environments_own_codes_reach_the_preprocessor():
    """Regression: `train_dqn --env` ignored the codes, and networks read no agent's cell."""
    preprocessor = gymnasium_task("rrl_tf/BoxWorld-8x8-v0", frames=2).preprocessor
    expected = box_world_task(8, pool=1).preprocessor
    codes = expected.shape[-1]
    assert preprocessor.shape == (8, 8, 2 * codes)
    assert preprocessor.agent_feature == codes + expected.agent_feature
    assert preprocessor.unseen_feature == codes + expected.unseen_feature


@pytest.mark.parametrize(
    ("space", "code", "message"),
    [
        (Box(0, 3, (4, 5, 2), np.uint8), 4, "`agent_code` must be from 0 to 3; received 4"),
        (Box(0, 255, (4, 5, 2), np.uint8), 1, "`agent_code` must observe a grid of codes below"),
        (Box(0, 3, (4,), np.uint8), 1, "`agent_code` must observe a grid of codes below"),
    ],
)
def test_codes_that_do_not_fit_the_observations_raise(space, code, message):
    class Coded(Walk):
        agent_code = code

    with pytest.raises(InvalidInput, match=message):
        gymnasium_task(lambda: Coded(space))


@pytest.mark.parametrize(
    ("space", "divisor"),
    [
        (Box(0, 255, (8, 8, 3)), 255),  # regression: float32 pixels were not scaled
        (Box(-255, 255, (8, 8, 3)), 255),
        (Box(-128, 127, (8, 8, 3), np.int8), 128),
        (Box(0, 1, (8, 8, 3)), 1),
        (Box(-np.inf, np.inf, (8, 8, 3)), 1),
        (Box(0, np.finfo(np.float32).max, (8, 8, 3)), 1),
        (Box(0, 255, (8,)), 1),
        (Box(0, 255, (8,), np.uint8), 255),
        (Box(0, 255, (2, 3, 4, 5), np.uint8), 255),
    ],
)
def test_pictures_are_divided_by_their_bound(space, divisor):
    task = gymnasium_task(functools.partial(Walk, space))
    observation, _ = task.make_env().reset(seed=0)
    np.testing.assert_allclose(
        np.asarray(task.preprocessor(observation)),
        observation.astype("float32") / divisor,
        rtol=1e-6,
    )


def test_frames_are_stacked_along_the_last_axis():
    task = gymnasium_task(functools.partial(Walk, Box(0, 3, (4, 5, 2), np.uint8)), frames=3)
    assert task.preprocessor.shape == (4, 5, 24)
    env = task.make_env()
    first, _ = env.reset(seed=0)
    second, *_ = env.step(0)
    np.testing.assert_array_equal(first[..., 2:], second[..., :4])


def test_stacked_frames_have_a_state_key_if_the_environment_has():
    walk = gymnasium_task(Walk, frames=2).make_env()
    assert not walk.has_wrapper_attr("state_key")
    grid = gymnasium_task("MiniGrid-Empty-5x5-v0", frames=2).make_env()
    grid.reset(seed=0)
    assert hash(grid.get_wrapper_attr("state_key")())


def test_actions_are_numbered_from_zero():
    task = gymnasium_task(functools.partial(Walk, action_space=Discrete(3, start=5)))
    assert (task.num_actions, task.action_names) == (3, ("5", "6", "7"))
    assert task.env_actions == (5, 6, 7)
    env = task.make_env()
    env.reset(seed=0)
    assert env.step(2)[1] == 7.0
    few = gymnasium_task("MiniGrid-MemoryS7-v0", actions=(0, 1, 2))
    assert few.action_names == ("left", "right", "forward")
    assert few.env_actions == ()  # equal to the task's actions


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (MultiDiscrete([2, 3], start=[0, 5]), list(itertools.product((0, 1), (5, 6, 7)))),
        (MultiBinary(2), [(0, 0), (0, 1), (1, 0), (1, 1)]),
    ],
)
def test_combinations_of_actions_are_numbered(space, actions):
    class Recorder(Walk):
        def step(self, action):
            assert isinstance(action, np.ndarray) and self.action_space.contains(action)
            return *super().step(0)[:4], {"action": action.tolist()}

    task = gymnasium_task(lambda: Recorder(action_space=space))
    assert task.env_actions == tuple(actions) and task.num_actions == len(actions)
    assert task.action_names[-1] == ", ".join(map(str, actions[-1]))
    env = task.make_env()
    env.reset(seed=0)
    assert [tuple(env.step(i)[4]["action"]) for i in range(len(actions))] == actions
    Recorder.action_names = [f"name {i}" for i in range(len(actions))]
    assert gymnasium_task(lambda: Recorder(action_space=space)).action_names[1] == "name 1"


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("NoSuch-v0", {}, "cannot make the environment 'NoSuch-v0'"),
        (":", {}, "cannot make the environment ':': Empty module name"),
        ("no_such_module:Walk-v0", {}, "no_such_module.* searched in /.* PYTHONPATH"),
        (
            functools.partial(Walk, action_space=Box(-1, 1, (2,))),
            {},
            "must be Discrete, or a MultiDiscrete or MultiBinary vector",
        ),
        (
            functools.partial(Walk, action_space=MultiDiscrete([33, 32])),
            {},
            r"at most 1024 combinations, .* received MultiDiscrete\(\[33 32\]\)",
        ),
        (
            functools.partial(Walk, action_space=MultiDiscrete([2, 2])),
            {"actions": (0, 1)},
            r"must be different actions of MultiDiscrete.*received \(0, 1\)",
        ),
        (functools.partial(Walk, Sequence(Discrete(3))), {}, "must have a fixed size and be a Box"),
        (functools.partial(Walk, Graph(Discrete(3), None)), {}, "be a Box .*received Graph"),
        (
            functools.partial(Walk, action_space=Graph(Discrete(3), None)),
            {},
            "must be Discrete, or a MultiDiscrete .*received Graph",
        ),
        (Walk, {"actions": (0, 7)}, r"must be different actions of Discrete.*received \(0, 7\)"),
        (Walk, {"frames": 0}, "`frames` must be a positive integer; received 0"),
        (Walk, {"actions": (0, 0)}, r"must be different actions of .*; received \(0, 0\)"),
        (Walk, {"max_steps": 0}, "max_steps` must be a positive integer; received 0"),
        ("CartPole-v1", {"max_steps": -1}, "max_steps` must be a positive integer; received -1"),
        (Walk, {"success_return": np.nan}, "`success_return` must be finite; received nan"),
    ],
)
def test_unsupported_environments_raise(env, options, message):
    with pytest.raises(ValueError, match=message):
        gymnasium_task(env, **options)


@pytest.mark.parametrize("max_steps", [None, 3])
def test_a_maker_needs_no_render_mode(max_steps):
    from rrl_tf.interpret.episode import _rendering_env

    def make():
        return gymnasium.make("CartPole-v1")

    task = gymnasium_task(make, max_steps=max_steps)
    assert task.make_env(render_mode="rgb_array").render_mode is None
    level = Level("", make)
    by_hand = Task("by hand", (level,), task.preprocessor)
    assert by_hand.make_test_env(render_mode="rgb_array").render_mode is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CartPole's warning about render_mode
        assert _rendering_env(by_hand) is None


def test_a_registered_environment_needs_no_render_mode():
    """Regression: Gymnasium passes `render_mode` even if it is None."""

    class Bare(CartPoleEnv):
        def __init__(self):
            super().__init__()

    gymnasium.register("Bare-v0", Bare, max_episode_steps=7)
    assert gymnasium_task("Bare-v0").make_env().observation_space.shape == (4,)
    del gymnasium.registry["Bare-v0"]


def test_an_environment_of_a_users_file_is_found(tmp_path, monkeypatch):
    (tmp_path / "my_file.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv',\n"
        "                   max_episode_steps=7, reward_threshold=6.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    task = gymnasium_task("my_file:Mine-v0")
    assert (task.name, task.success_return) == ("Mine-v0", 6.0)
    sys.modules.pop("my_file")
    del gymnasium.registry["Mine-v0"]


COLOURS = ["blue", "green", "grey", "purple", "red", "yellow"]
KINDS = ["key", "ball", "box"]


def test_minigrid_has_cells_names_and_a_state():
    task = gymnasium_task("MiniGrid-KeyCorridorS3R1-v0")
    assert task.preprocessor.shape == (7, 7, 24 + 6)  # the mission names one of six colours
    assert task.action_names[2] == "forward"
    env = task.make_env()
    observation, _ = env.reset(seed=3)
    key = env.get_wrapper_attr("state_key")()
    env.step(0)
    assert env.get_wrapper_attr("state_key")() != key
    env.step(1)
    assert env.get_wrapper_attr("state_key")() == key
    assert task.entities(observation)["agent"] == (3, 6)
    assert task.view(env).shape[-1] == 3
    with pytest.raises(ValueError, match="`frames` must be a positive integer; received 0"):
        gymnasium_task("MiniGrid-Empty-5x5-v0", frames=0)


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("GoToObject-6x6-N2", [COLOURS, KINDS]),
        ("PutNear-6x6-N2", [COLOURS, KINDS] * 2),
        ("ObstructedMaze-1Dl", []),  # the only colour is blue
        ("DoorKey-5x5", []),
    ],
)
def test_variable_words_of_missions_are_channels(name, lists):
    env = gymnasium_task(f"MiniGrid-{name}-v0", frames=2).make_env()
    channels = 4 + len(lists)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        words = [word for word in env.unwrapped.mission.split() if word in COLOURS + KINDS]
        numbers = [each.index(word) for each, word in zip(lists, words, strict=bool(lists))]
        assert observation.shape == (7, 7, 2 * channels)
        for first in (4, channels + 4):
            frame = observation[..., first : first + len(lists)]
            np.testing.assert_array_equal(frame, np.broadcast_to(numbers, frame.shape))


def test_missions_without_lists_of_words_are_ignored():
    env = functools.partial(wrapped(DictObservationSpaceWrapper), render_mode=None)
    assert gymnasium_task(env).preprocessor.shape == (7, 7, 24)


def test_missions_outside_the_mission_space_are_refused():
    env = gymnasium_task(lambda: GoToDoorEnv(size=5)).make_env()
    env.reset(seed=0)
    env.unwrapped.mission = "dance"
    with pytest.raises(ValueError, match="such as 'go to the blue door'; received 'dance'"):
        env.step(0)


def wrapped(wrapper, *arguments, name="MiniGrid-Empty-8x8-v0"):
    """Return a function that makes a wrapped MiniGrid environment."""

    def make(render_mode=None):
        return wrapper(gymnasium.make(name, render_mode=render_mode), *arguments)

    return make


@pytest.mark.parametrize("name", ["DoorKey-5x5", "MemoryS7", "KeyCorridorS3R1"])
def test_an_array_of_codes_is_a_grid(name):
    """Regression: every wrapped MiniGrid environment was expected to observe a dict."""
    task = gymnasium_task(f"rrl_tf/{name}-v0", frames=2)
    assert task.preprocessor.shape == (7, 7, 48)
    assert task.action_names[2] == "forward"
    env, own = task.make_env(), gymnasium.make(f"rrl_tf/{name}-v0")
    for each in (env, own):
        each.reset(seed=0)
    key, *_ = env.get_wrapper_attr("state_key")()
    assert key == own.get_wrapper_attr("state_key")()  # not MiniGrid's key of all cells


def test_an_image_without_a_dict_is_unchanged():
    task = gymnasium_task(wrapped(ImgObsWrapper))
    assert (task.preprocessor.shape, task.success_return) == ((7, 7, 3), 0.05)
    env = task.make_env()
    env.reset(seed=0)
    assert hash(env.get_wrapper_attr("state_key")())


def test_a_view_of_another_size_has_the_agent_in_its_own_middle():
    """Regression: the agent's cell was always that of a 7 x 7 view."""
    task = gymnasium_task(wrapped(ViewSizeWrapper, 5))
    env = task.make_env()
    observation, _ = env.reset(seed=0)
    assert task.preprocessor.agent_cell == task.entities(observation)["agent"] == (2, 4)
    assert task.view(env).shape == (5 * 32, 5 * 32, 3)


def test_a_view_of_the_whole_grid_has_an_agent_feature():
    """Regression: the agent's cell was in the middle of the last row, which is a wall."""
    task = gymnasium_task(wrapped(FullyObsWrapper), frames=2)
    env = task.make_env()
    env.reset(seed=0)
    observation, *_ = env.step(task.action_names.index("forward"))
    assert task.entities(observation)["agent"] == (2, 1) == tuple(env.unwrapped.agent_pos)
    prepared = np.asarray(task.preprocessor(observation))[..., task.preprocessor.agent_feature]
    assert np.argwhere(prepared).tolist() == [[2, 1]]
    assert task.preprocessor.agent_cell is None
    assert task.view(env).shape == (8 * 32, 8 * 32, 3)


def test_states_do_not_repeat_in_a_world_that_moves():
    env = gymnasium_task("MiniGrid-Dynamic-Obstacles-6x6-v0").make_env()
    env.reset(seed=0)
    keys = set()
    for _ in range(6):
        keys.add(env.get_wrapper_attr("state_key")())
        *_, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            break
    assert len(keys) > 4


def doorkey_level(size, **arguments):
    return Level(str(size), functools.partial(make_doorkey, size, **arguments))


def test_levels_share_their_spaces():
    preprocessor = doorkey_task().preprocessor
    with pytest.raises(ValueError, match=r"must contain .* equal spaces"):
        Task("mixed", (doorkey_level(5), doorkey_level(6, observation="compass")), preprocessor)
    with pytest.raises(ValueError, match=r"must contain .* equal spaces"):
        gymnasium_task("CartPole-v1", test_env="MountainCar-v0")
    with pytest.raises(ValueError, match="cannot make the environment 'CartPole-v99'"):
        gymnasium_task("CartPole-v1", test_env="CartPole-v99")
    found = (
        r"DoorKey-5x5-v0: \(7, 7, 4\), Discrete\(7\); MiniGrid-KeyCorridorS3R1-v0: \(7, 7, 5\), "
    )
    with pytest.raises(ValueError, match=found):
        gymnasium_task("MiniGrid-KeyCorridorS3R1-v0", curriculum=["MiniGrid-DoorKey-5x5-v0"])
    with pytest.raises(ValueError, match=r"equal spaces .*CartPole-v1"):
        gymnasium_task("MiniGrid-DoorKey-5x5-v0", curriculum=["CartPole-v1"])
    with pytest.raises(ValueError, match="at least one level; received none"):
        Task("empty", (), preprocessor)
    with pytest.raises(ValueError, match=r"`action_names` .* must be 2 names"):
        Task("names", (Level("", Walk),), as_float(Box(-1, 1, (3,))), action_names=("left",))
    with pytest.raises(ValueError, match="must be Discrete and start at 0"):
        make = functools.partial(Walk, action_space=Discrete(2, start=1))
        Task("start", (Level("", make),), as_float(Box(-1, 1, (3,))))


def test_a_curriculum_ends_with_the_environment_itself():
    easier = ["MiniGrid-DoorKey-5x5-v0", "MiniGrid-DoorKey-6x6-v0"]
    task = gymnasium_task(
        "MiniGrid-Unlock-v0", test_env="MiniGrid-DoorKey-8x8-v0", curriculum=easier, frames=2
    )
    assert task.name == "MiniGrid-Unlock-v0"
    assert [level.name for level in task.levels] == [*easier, "MiniGrid-Unlock-v0"]
    ids = [task.make_env(level).spec.id for level in range(3)]
    assert ids == [*easier, "MiniGrid-Unlock-v0"]
    tested = [task.make_test_env(level).spec.id for level in range(3)]
    assert tested == [*easier, "MiniGrid-DoorKey-8x8-v0"]
    assert task.preprocessor.shape == (7, 7, 48)  # two frames
    [level] = gymnasium_task("MiniGrid-Unlock-v0", curriculum=()).levels
    assert level.name == ""


def test_the_preprocessor_fits_the_observations():
    other = gymnasium_task(functools.partial(Walk, Box(0, 3, (4, 5, 2), np.uint8))).preprocessor
    with pytest.raises(ValueError, match=r"must accept observations of Box.*4, 5"):
        make = functools.partial(Walk, Box(0, 3, (4, 5), np.uint8))
        Task("axes", (Level("", make),), other)
    wrong = Preprocessor(lambda observation: observation, (7,))
    with pytest.raises(ValueError, match=r"must return the shape \(1, 7\); received \(1, 3\)"):
        Task("shape", (Level("", Walk),), wrong)


def test_evaluation_resets_are_starts_or_seeds():
    task = doorkey_task((5, 6))
    assert len(task.evaluation_resets()) == 300
    assert len(task.evaluation_resets(level=0)) == 48
    some = task.evaluation_resets(at_most=10)
    assert some == task.evaluation_resets(at_most=10)
    everything = [reset["options"]["start"] for reset in task.evaluation_resets(at_most=1000)]
    assert everything == sorted(everything) and len(everything) == 816
    assert {each["options"]["start"] for each in some} <= set(everything)
    assert doorkey_task((9,)).evaluation_resets(at_most=3) == [{"seed": s} for s in range(3)]


def test_held_out_layouts_are_tested_and_never_trained_on():
    task = doorkey_task((5, 6), held_out=True)
    held = {r["options"]["start"].layout for r in task.evaluation_resets(at_most=1000)}
    assert len(held) == 12
    env = task.make_env()
    met = {env.reset(seed=seed) and env.get_wrapper_attr("start").layout for seed in range(200)}
    assert len(met) > 15 and not met & held
    easier = task.make_env(level=0)
    easier.reset(seed=0)
    assert easier.get_wrapper_attr("start").size == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": (9,), "held_out": True}, "`sizes` must be at most 8 .*received 9"),
        ({"sizes": (4,)}, "`size` must be at least 5"),
        ({"sizes": ()}, r"of at least 1, or a sequence of these; received \(\)"),
        (
            {"held_out": True, "held_out_seed": -1},
            "`held_out_seed` must be an integer of at least 0",
        ),
        ({"sizes": (6,), "held_out": True, "held_out_seed": 1.5}, "held_out_seed.*received 1.5"),
        ({"frames": 1.5}, "`frames` must be a positive integer; received 1.5"),
        ({"preprocessor": "nope"}, "`preprocessor` must be one of .*received 'nope'"),
        ({"observation": "nope"}, "`observation` must be one of .*received 'nope'"),
    ],
)
def test_invalid_doorkey_tasks_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        doorkey_task(**arguments)


@pytest.mark.parametrize("max_steps", [100, 400])
def test_max_steps_extends_minigrids_own_limit(max_steps):
    """Regression: a limit above the environment's own had no effect."""
    env = gymnasium_task("MiniGrid-MemoryS7-v0", max_steps=max_steps).make_env()
    assert env.reset(seed=0) and MemoryEnv(size=7).max_steps == 245
    for step in range(1, max_steps + 1):
        *_, terminated, truncated, _ = env.step(0)
        assert not terminated and truncated == (step == max_steps)


@pytest.mark.parametrize(("make", "size"), [(doorkey_task, 6), (memory_task, 7)])
def test_held_out_seed_without_held_out_raises(make, size):
    with pytest.raises(InvalidInput, match=r"`held_out_seed` must be 0 .*; received 3"):
        make((size,), held_out_seed=3)
