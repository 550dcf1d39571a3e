"""What the numbers of an observation mean, and how they become the input of a network.

An observation is uint8 and (7, 7, C), axes (x, y): C is `frames * channels`, the channels of a
frame are object, colour, state and, with a compass, the agent's direction. The agent stands at
(3, 6) and looks towards y = 0; its cell shows what it carries.
"""

import functools

import numpy as np
from keras import ops
from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX, STATE_TO_IDX

from rrl_tf.errors import InvalidInput

VIEW_SIZE = 7
AGENT_CELL = (VIEW_SIZE // 2, VIEW_SIZE - 1)

# Number of codes of object, colour, state and direction: 11, 6, 3 and 4.
CODES_PER_CHANNEL = tuple(map(len, (OBJECT_TO_IDX, COLOR_TO_IDX, STATE_TO_IDX, DIR_TO_VEC)))

ACTION_NAMES = tuple(action.name for action in Actions)
# DoorKey needs no drop and no done.
TASK_ACTIONS = (Actions.left, Actions.right, Actions.forward, Actions.pickup, Actions.toggle)
TASK_ACTIONS = tuple(map(int, TASK_ACTIONS))


def prepare_one_hot(observation, channels=3):
    """Writes every code as a one-hot vector.

    Args:
        observation: `(..., 7, 7, frames * channels)` codes; `validate_observation` checks them. A
            code that does not exist would become a vector of zeros.
        channels: Channels of one frame, 3 or, with a compass, 4.

    Returns:
        `(..., 7, 7, frames * 20)` float32, with a compass `(..., 7, 7, frames * 24)`: for each
        frame the objects, colours, states and directions in the order of MiniGrid's codes.

    Raises:
        ValueError: The last axis does not hold a whole number of frames.

    Example:
        >>> tuple(prepare_one_hot(np.zeros((7, 7, 3), "uint8")).shape)
        (7, 7, 20)
    """
    frames = _count_frames(observation, channels)
    # A product with zeros and ones repeats every channel once per code, and one comparison is left:
    # on a CPU sooner than as many one-hots and a concatenation, and the more so with more frames.
    codes = CODES_PER_CHANNEL[:channels]
    repeat = np.kron(np.eye(frames), np.repeat(np.eye(channels), codes, axis=1)).astype("float32")
    code = np.tile(np.concatenate([np.arange(n) for n in codes]), frames).astype("float32")
    repeated = ops.matmul(ops.cast(observation, "float32"), repeat)
    return ops.cast(ops.equal(repeated, code), "float32")


def prepare_constant(observation, channels=3):
    """Divides every channel by its largest code.

    Args:
        observation: `(..., 7, 7, frames * channels)` codes.
        channels: Channels of one frame, 3 or, with a compass, 4.

    Returns:
        `(..., 7, 7, frames * channels)` float32 between 0 and 1.

    Raises:
        ValueError: The last axis does not hold a whole number of frames.

    Example:
        >>> float(ops.max(prepare_constant(np.full((7, 7, 3), 2, "uint8"))))
        1.0
    """
    frames = _count_frames(observation, channels)
    largest = np.tile(np.array(CODES_PER_CHANNEL[:channels], "float32") - 1, frames)
    return ops.cast(observation, "float32") / largest


def prepare_frame_maximum(observation):
    """Divides an observation by its own largest number, as the book does.

    The number an object becomes depends on what else is in view: a door is 4/5 beside the key and
    4/8 beside the goal. Only the `book` preset wants this.

    Args:
        observation: `(..., 7, 7, C)` codes.

    Returns:
        `(..., 7, 7, C)` float32 between 0 and 1.

    Example:
        >>> float(ops.max(prepare_frame_maximum(np.full((7, 7, 3), 2, "uint8"))))
        1.0

    Source: Zai and Brown, Deep Reinforcement Learning in Action (2020), chapter 10.
    """
    observation = ops.cast(observation, "float32")
    # The agent's own cell is at least 1 ("empty"), so the 1 only keeps an all-zero input finite.
    return observation / ops.maximum(ops.max(observation, axis=(-3, -2, -1), keepdims=True), 1.0)


PREPARATIONS = {
    "one_hot": prepare_one_hot,
    "one_hot_compass": functools.partial(prepare_one_hot, channels=4),
    "constant": prepare_constant,
    "constant_compass": functools.partial(prepare_constant, channels=4),
    "frame_maximum": prepare_frame_maximum,
}


def validate_observation(observation, shape, channels=3):
    """Returns the observation as an array, if it is one that the environment can give.

    Args:
        observation: One observation or a batch of them.
        shape: Shape of one, `(7, 7, C)`.
        channels: Channels of one frame, 3 or, with a compass, 4.

    Raises:
        ValueError: The shape, the dtype or a code is wrong.

    Example:
        >>> validate_observation(np.zeros((2, 7, 7, 3), "uint8"), (7, 7, 3)).shape
        (2, 7, 7, 3)
    """
    observation = np.asarray(observation)
    shape = tuple(shape)
    is_shape = observation.ndim in (len(shape), len(shape) + 1)
    if not is_shape or observation.shape[-len(shape) :] != shape or observation.dtype != np.uint8:
        raise InvalidInput(
            f"Expected an observation of shape {shape} or a batch (B, {str(shape)[1:]} of dtype "
            f"uint8, received shape {observation.shape} of dtype {observation.dtype}."
        )
    number_of_codes = np.tile(CODES_PER_CHANNEL[:channels], _count_frames(observation, channels))
    wrong = np.argwhere(observation >= number_of_codes)
    if len(wrong):
        where = tuple(map(int, wrong[0]))
        raise InvalidInput(
            f"Expected codes below {number_of_codes[where[-1]]} in channel {where[-1]} of an "
            f"observation, received {observation[where]} at {where}."
        )
    return observation


def object_cells(view, channels=3):
    """Finds the agent and the objects it sees.

    Args:
        view: One observation, `(7, 7, C)`; of stacked frames the newest counts.
        channels: Channels of one frame, 3 or, with a compass, 4.

    Returns:
        Label -> cell (x, y), in the order agent, key, door, goal, without what is out of sight. A
        carried key is in the agent's cell. The entity of cell (x, y) is number `x * 7 + y`.

    Example:
        >>> view = np.zeros((7, 7, 3), "uint8")
        >>> view[2, 5, 0] = OBJECT_TO_IDX["key"]
        >>> object_cells(view)
        {'agent': (3, 6), 'key': (2, 5)}
    """
    objects = np.asarray(view)[..., -channels]
    cells = {"agent": AGENT_CELL}
    for label in ("key", "door", "goal"):
        found = np.argwhere(objects == OBJECT_TO_IDX[label])
        if len(found):
            cells[label] = tuple(map(int, found[0]))
    return cells


def _count_frames(observation, channels):
    if channels not in (3, 4):
        raise InvalidInput(f"channels must be 3 (view) or 4 (compass), received {channels!r}.")
    size = observation.shape[-1]
    if size % channels:
        raise InvalidInput(
            f"Expected a multiple of {channels} channels in the last axis of an observation, "
            f"received shape {tuple(observation.shape)}."
        )
    return size // channels
