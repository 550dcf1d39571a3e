"""Sequences drawn from the replay: always whole, also where it begins to write over the oldest."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.agents.sequence_timeline import SequenceTimeline
from rrl_tf.errors import InvalidInput

pytestmark = pytest.mark.tf_only
ENVS = 2


@pytest.fixture(scope="module", autouse=True)
def eagerly():
    """Compiling takes a second, and what is computed is the same."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def timeline(kept, length, period, **options):
    return SequenceTimeline(
        kept * ENVS,
        (),
        "int64",
        num_envs=ENVS,
        length=length,
        period=period,
        memory_size=1,
        jit_compile=False,
        **options,
    )


def add(replay, step):
    """One step whose observations are its number, and what is known before it as well."""
    no, zeros = np.zeros(ENVS, bool), np.zeros(ENVS, "float32")
    views = np.full(ENVS, step)
    recall = {
        "memory": np.full((ENVS, 1), step, "float32"),
        "previous_action": np.zeros(ENVS, "int32"),
        "previous_reward": zeros,
    }
    replay.add(views, np.zeros(ENVS, "int32"), zeros, no, no, views + 1, recall=recall)


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.6]),
    st.integers(1, 40),
)
@settings(max_examples=25, deadline=None)
def test_drawn_sequences_are_whole_and_begin_where_they_may(length, period, more, exponent, steps):
    """They went on in the newest steps once, where no whole one was left, or had no weights."""
    kept = length + period - 1 + more
    replay = timeline(kept, length, period, priority_exponent=exponent)
    for step in range(steps):
        add(replay, step)
        if not len(replay):
            continue
        (sequence,), _ = replay.sample(8, (step, 1))
        begin = sequence["memory"].numpy()[:, 0]
        np.testing.assert_array_equal(
            sequence["observation_t"].numpy(), begin[:, None] + np.arange(length)
        )
        assert (begin % period == 0).all() and (begin > step - kept).all()
        assert np.isfinite(sequence["weight_t"].numpy()).all()


@pytest.mark.parametrize(("length", "period", "kept"), [(6, 4, 8), (5, 1, 4), (1, 3, 2)])
def test_a_replay_that_may_hold_no_whole_sequence_is_refused(length, period, kept):
    timeline(length + period - 1, length, period)
    with pytest.raises(InvalidInput, match=f"capacity must hold .*received {kept * ENVS}"):
        timeline(kept, length, period)


@pytest.mark.parametrize("argument", ["length", "period"])
def test_lengths_are_whole_numbers(argument):
    with pytest.raises(InvalidInput, match=f"`{argument}` must be a positive integer.*2.5"):
        timeline(20, **{"length": 4, "period": 2, argument: 2.5})


def test_a_memory_has_a_whole_size():
    with pytest.raises(InvalidInput, match="`memory_size` must be an integer"):
        SequenceTimeline(20, (), "uint8", num_envs=1, length=4, period=2, memory_size=1.5)
