"""Box-World's levels and starts: valid and invalid arguments."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.envs import BoxWorld, BoxWorldStart, held_out_pairs
from rrl_tf.envs.box_world.levels import DISTRACTOR, KEY, LOCK, cell_code
from rrl_tf.errors import InvalidInput


@given(
    size=st.integers(6, 12),
    goal_length=st.integers(1, 8) | st.lists(st.integers(1, 6), min_size=1, max_size=4),
    num_distractors=st.integers(0, 4) | st.just((0, 1, 2, 3, 4)),
    part=st.sampled_from(["all", "train", "test"]),
    held_out_fraction=st.floats(0, 1),
)
@settings(max_examples=40)
def test_every_valid_environment_can_be_reset(**arguments):
    """Regression: some accepted environments raised an error at a later reset."""
    try:
        env = BoxWorld(**arguments)
    except InvalidInput:
        return
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        assert env.observation_space.contains(observation) and env.unwrapped.start.boxes


@pytest.mark.parametrize(
    "arguments",
    [
        {"part": "train", "held_out_fraction": 0.7},  # 10 % of the draws fail
        {"size": 11, "goal_length": 4, "num_distractors": 11},
    ],
)
def test_rare_levels_raise_at_once(arguments):
    with pytest.raises(InvalidInput, match=r"no level of .* was found in .* received"):
        BoxWorld(**arguments)


NO_STARTS = [
    (2, bytes(4), (0, 2)),
    (2, bytes(4), None),
    (2, bytes(4), 1),
    (2, bytes(4), (0, 0, 0)),
    (2, bytes(4), (0, 0.0)),
    (2, bytes(3), (0, 0)),
    (2, [0, 0, 0, 0], (0, 0)),
    (2, None, (0, 0)),
    ("2", bytes(4), (0, 0)),
    (2, bytes([0, 0, 0, 255]), (0, 0)),
]


@pytest.mark.parametrize("start", NO_STARTS, ids=repr)
def test_invalid_starts_raise(start):
    with pytest.raises(InvalidInput, match="agent on the floor; received BoxWorldStart"):
        BoxWorldStart(*start)


@given(
    kind=st.sampled_from([KEY, LOCK, DISTRACTOR]),
    colour=st.integers(1, 31),
    num_colours=st.integers(4, 31),
    cell=st.integers(1, 63),
)
def test_a_start_with_unknown_colours_raises(kind, colour, num_colours, cell):
    """Regression: loose keys of unknown colours were accepted."""
    cells = bytearray(64)
    cells[cell] = cell_code(kind, colour)
    env, start = BoxWorld(8, 1, 0, num_colours=num_colours), BoxWorldStart(8, bytes(cells), (0, 0))
    if colour <= num_colours:
        assert env.observation_space.contains(env.reset(options={"start": start})[0])
    else:
        with pytest.raises(InvalidInput, match=f"size 8 with colours up to {num_colours}; rec"):
            env.reset(options={"start": start})


@given(
    kinds=st.lists(st.sampled_from([0, KEY, LOCK, DISTRACTOR]), min_size=16, max_size=16),
    colours=st.lists(st.integers(1, 31), min_size=16, max_size=16),
)
def test_a_box_is_a_lock_and_the_cell_to_its_left(kinds, colours):
    """Regression: a lock at the left end of a row closed the last cell of the row above."""
    kinds[0] = 0
    codes = [cell_code(kind, colour if kind else 0) for kind, colour in zip(kinds, colours)]
    expected = [
        (colours[i], codes[i - 1] % 32 if i % 4 else 0, kinds[i] == DISTRACTOR)
        for i in range(16)
        if kinds[i] in (LOCK, DISTRACTOR)
    ]
    assert BoxWorldStart(4, bytes(codes), (0, 0)).boxes == tuple(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((20, 0.2, -1), "`held_out_seed` must be an integer of at least 0; received -1"),
        ((20, "x"), "`held_out_fraction` must be from 0 to 1; received 'x'"),
        ((20, 0.2, "x"), "held_out_seed. must be an integer of at least 0; received 'x'"),
        ((1,), "`num_colours` must be from 2 to 31; received 1"),
        (([20],), r"num_colours. must be an integer; received \[20\]"),
    ],
)
def test_invalid_pairs_raise(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        held_out_pairs(*arguments)
