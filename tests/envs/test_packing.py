"""Packed observations: the bytes of all parts, and the inputs of networks."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from rrl_tf.envs import gymnasium_task
from rrl_tf.envs.packing import Packing
from rrl_tf.errors import InvalidInput

SPACE = Dict(
    image=Box(0, 255, (2, 3, 3), np.uint8),
    grid=Box(0, 3, (2, 2), np.uint8),
    speed=Box(-np.inf, np.inf, (2,), np.float64),
    count=Box(-(2**60), 2**60, (), np.int64),
    gear=Discrete(3, start=-1),
    codes=MultiDiscrete([2, 3], start=[0, 4]),
    switches=MultiBinary(3),
    lamps=Box(0, 1, (2,), bool),
    nested=Tuple((Discrete(2), Dict(angle=Box(-1, 1, (1,), np.float32)))),
)
EXAMPLE = {
    "image": np.arange(18, dtype=np.uint8).reshape(2, 3, 3) + 237,
    "grid": np.array([[0, 1], [2, 3]], np.uint8),
    "speed": np.array([1 / 3, -1e30 / 7]),
    "count": np.array(2**53 + 1),  # neither float32 nor float64 can represent it
    "gear": 1,
    "codes": np.array([1, 4]),
    "switches": np.array([1, 0, 1], np.int8),
    "lamps": np.array([True, False]),
    "nested": (np.int64(1), {"angle": np.array([0.1], np.float32)}),
}


class Fixed(gymnasium.Env):
    """Environment with a fixed observation at resets; a step sets `gear` to -1."""

    observation_space, action_space = SPACE, Discrete(2)

    def __init__(self, space=SPACE, observation=None):
        self.observation_space = space
        self.shown = EXAMPLE if observation is None else observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.shown, {}

    def step(self, action):
        return {**self.shown, "gear": -1}, 0.0, False, False, {}


def test_packing_keeps_every_number():
    assert SPACE.contains(EXAMPLE)
    packing = Packing(SPACE)
    packed = packing.pack(EXAMPLE, lambda: "a test")
    assert packed.dtype == np.uint8 and packed.shape == (packing.size,)
    parts = {name: np.asarray(each)[0] for name, each in packing.unpack(packed[None]).items()}
    first, rest = EXAMPLE["nested"]
    expected = {**EXAMPLE, "nested_part_0": first, "nested_part_1_angle": rest["angle"]}
    del expected["nested"]
    assert parts.keys() == expected.keys()
    for name, part in parts.items():
        np.testing.assert_array_equal(part, expected[name], err_msg=name)
        assert part.dtype == packing.boxes[name].dtype


def test_each_part_is_preprocessed_by_its_space():
    task = gymnasium_task(Fixed)
    observation, _ = task.make_env().reset(seed=0)
    inputs = {name: np.asarray(x)[0] for name, x in task.preprocessor(observation[None]).items()}
    assert {name: x.shape for name, x in inputs.items()} == task.preprocessor.shape
    np.testing.assert_allclose(inputs["image"], EXAMPLE["image"] / np.float32(255), rtol=1e-6)
    np.testing.assert_array_equal(inputs["grid"].argmax(-1), EXAMPLE["grid"])
    np.testing.assert_allclose(inputs["speed"], EXAMPLE["speed"], rtol=1e-6)
    assert inputs["gear"].tolist() == [0, 0, 1]
    assert inputs["codes"].tolist() == [0, 1, 1, 0, 0]
    assert inputs["switches"].tolist() == [1, 0, 1] and inputs["lamps"].tolist() == [1, 0]
    assert inputs["nested_part_0"].tolist() == [0, 1]
    np.testing.assert_array_equal(inputs["nested_part_1_angle"], np.float32([0.1]))


def test_stacked_frames_are_concatenated_in_each_part():
    task = gymnasium_task(Fixed, frames=2)
    env = task.make_env()
    env.reset(seed=0)
    observation, *_ = env.step(0)
    parts = task.preprocessor.packing.unpack(observation[None])
    parts = {name: np.asarray(part)[0] for name, part in parts.items()}
    assert parts["gear"].tolist() == [1, -1]
    assert parts["speed"].tolist() == 2 * EXAMPLE["speed"].tolist()
    np.testing.assert_array_equal(parts["grid"], np.stack(2 * [EXAMPLE["grid"]], axis=-1))
    np.testing.assert_array_equal(parts["image"][..., 3:], EXAMPLE["image"])
    inputs = task.preprocessor(observation[None])
    assert np.asarray(inputs["gear"]).tolist() == [[0, 0, 1, 1, 0, 0]]
    assert {name: tuple(x.shape[1:]) for name, x in inputs.items()} == task.preprocessor.shape


@pytest.mark.parametrize(
    ("space", "observation"), [(Discrete(4, start=3), 5), (MultiBinary(2), np.int8([0, 1]))]
)
def test_observations_of_one_part_are_no_dict(space, observation):
    task = gymnasium_task(lambda: Fixed(space, observation))
    packed, _ = task.make_env().reset(seed=0)
    (row,) = np.asarray(task.preprocessor(packed[None]))
    assert row.tolist() == ([0, 0, 1, 0] if isinstance(space, Discrete) else [0, 1])


def test_a_matrix_reaches_entities_and_the_export_without_channels():
    class Matrix(Fixed):
        def __init__(self):
            super().__init__(Box(0, 3, (4, 5), np.uint8))

        def reset(self, *, seed=None, options=None):
            return np.full((4, 5), 2, np.uint8), {}

        def entities(self, observation):
            return {str(observation.shape): (0, int(observation[3, 4]))}

    task = gymnasium_task(Matrix)
    observation, _ = task.make_env().reset(seed=0)
    assert task.entities(observation) == {"(4, 5)": (0, 2)}
    encode, shapes, _ = task.raw_observation
    assert shapes == {"observation": (4, 5)}
    encoded = encode({"observation": np.full((2, 4, 5), 2, np.uint8)})
    np.testing.assert_array_equal(encoded[0], task.preprocessor(observation))


def test_codes_of_an_environment_apply_to_its_first_grid():
    class Marked(Fixed):
        agent_code, unseen_code = 2, 0

        @staticmethod
        def entities(observation):
            return {"agent": tuple(np.argwhere(observation["grid"] == 2)[0])}

    task = gymnasium_task(Marked)
    grid = task.preprocessor.parts["grid"]
    assert (grid.agent_feature, grid.unseen_feature) == (2, 0)
    assert task.preprocessor.parts["image"].agent_feature is None
    observation, _ = task.make_env().reset(seed=0)
    assert task.entities(observation) == {"agent": (1, 0)}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Dict(text=Text(9)), r"space of 'text' must have a fixed size.*FilterObservation"),
        (Dict({"two words": Discrete(2)}), "letters, digits and `_`.*received 'two words'"),
        (Dict({"class": Discrete(2)}), "received 'class'"),
        (Dict(memory=Discrete(2)), "received 'memory'"),
        (Dict(a=Dict(b=Discrete(2)), a_b=Discrete(2)), "must have different names"),
    ],
)
def test_unsupported_parts_raise(space, message):
    with pytest.raises(InvalidInput, match=message):
        gymnasium_task(lambda: Fixed(space))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"gear": 1.5},
            r"observation's 'gear' must be int64 .*received .* with 1.5 from F",
        ),
        ({"speed": np.array([0, np.nan])}, "observation's 'speed' must be finite float64"),
        ({"more": 1}, "`observation` must have the parts .*received .*'more'"),
    ],
)
def test_wrong_observations_raise(changes, message):
    env = gymnasium_task(lambda: Fixed(observation={**EXAMPLE, **changes})).make_env()
    with pytest.raises(InvalidInput, match=message):
        env.reset(seed=0)
