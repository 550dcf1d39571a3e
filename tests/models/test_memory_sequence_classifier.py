"""MemorySequenceClassifier: its cores, presets, attention and mask."""

import keras
import numpy as np
import pytest
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.layers import RelationalMemory
from rrl_tf.models import MemorySequenceClassifier

CORES = {
    "relational_memory": {"mem_slots": 3, "head_size": 4, "num_heads": 2},
    "lstm": {"units": 8},
    "transformer": {"width": 8, "num_blocks": 2, "num_heads": 2},
}
each_core = pytest.mark.parametrize("core", CORES)


def small(core):
    return MemorySequenceClassifier(3, core, CORES[core], hidden_units=(6,))


def sequences(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def array(tensor):
    return ops.convert_to_numpy(tensor)


@each_core
def test_logits_depend_on_every_step(core):
    model, x = small(core), sequences(2, 5, 4)
    before = array(model(x))
    for step in range(5):
        changed = x.copy()
        changed[:, step] += 1
        assert (np.abs(array(model(changed)) - before).max(axis=-1) > 1e-6).all(), step


@each_core
def test_masked_tail_changes_nothing(core):
    model, x = small(core), sequences(2, 5, 4)
    masked = model(x, mask=np.arange(5) < [[3], [4]])
    for i, length in enumerate((3, 4)):
        alone = array(model(x[i : i + 1, :length]))
        np.testing.assert_allclose(array(masked)[i : i + 1], alone, atol=1e-6)


def test_transformer_ignores_masked_steps():
    model, x = small("transformer"), sequences(2, 5, 4)
    mask = np.array([[False, True, True, False, True]] * 2)
    changed = np.where(mask[..., None], x, 7.0)
    np.testing.assert_allclose(
        array(model(changed, mask=mask)), array(model(x, mask=mask)), atol=1e-6
    )


def test_attention_equals_that_of_the_layer():
    model, x = small("relational_memory"), sequences(2, 5, 4)
    logits, attention = model(x, return_attention_scores=True)
    layer = RelationalMemory(**CORES["relational_memory"])
    layer.build(x.shape)
    layer.set_weights(model.core_layer.get_weights())
    memory, expected = layer(x, return_attention_scores=True)
    np.testing.assert_allclose(
        array(attention["block_1"]), array(expected["block_1"]), rtol=1e-6, atol=1e-6
    )
    hidden = np.maximum(array(model.hidden[0](memory)), 0)
    np.testing.assert_allclose(array(model.head(hidden)), array(logits), rtol=1e-5, atol=1e-5)


def test_lstm_returns_no_attention():
    _, attention = small("lstm")(sequences(2, 5, 4), return_attention_scores=True)
    assert attention == {}


def test_baselines_have_as_many_parameters_as_the_memory():
    for preset, features in (("fast", 16), ("five", 19), ("eight", 40), ("paper", 40)):
        counts = []
        for core in ("", "-lstm", "-transformer"):
            model = MemorySequenceClassifier.from_preset(preset + core)
            model.build((None, 5, features))
            counts.append(model.count_params())
        assert max(counts) <= 1.02 * min(counts), counts


def test_core_of_the_paper_has_605_184_parameters():
    model = MemorySequenceClassifier.from_preset("paper")
    model.build((None, 8, 40))
    assert model.core_layer.count_params() == 605_184


def test_bad_arguments_are_errors():
    with pytest.raises(ValueError, match=r"`core` must be one of .*; received 'gru'"):
        MemorySequenceClassifier(3, "gru", {})
    with pytest.raises(ValueError, match=r"`num_classes` must be a positive integer; received 0"):
        MemorySequenceClassifier(0, "lstm", {"units": 4})
    for core, arguments in (
        ("relational_memory", {"slots": 3}),
        ("lstm", {"slots": 3}),
        ("transformer", {"slots": 3}),
        ("lstm", None),
        ("lstm", 4),
    ):
        with pytest.raises(InvalidInput, match=r"`core_arguments` must be a dict.*; received"):
            MemorySequenceClassifier(3, core, arguments)
    with pytest.raises(
        ValueError, match=r"`preset` must be one of .*'paper-lstm'.*; received 'slow'"
    ):
        MemorySequenceClassifier.from_preset("slow")
    with pytest.raises(ValueError, match=r"sequences. must be \(B, T, F\).*\(2, 4\)"):
        small("lstm").build((2, 4))
    with pytest.raises(ValueError, match="expected shape"):
        model = small("lstm")
        model(sequences(1, 2, 3))
        model(sequences(1, 2, 4))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_fit_learns_which_label_came_last(policy):
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    answers = rng.integers(3, size=(512, 4))
    x = np.eye(3, dtype="float32")[answers]
    model = MemorySequenceClassifier(
        3, "relational_memory", CORES["relational_memory"], (16,), dtype=policy
    )
    model.compile(
        keras.optimizers.Adam(1e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(x, answers[:, -1], batch_size=64, epochs=8, verbose=0).history
    assert history["accuracy"][-1] > 0.95
