"""The `removed` argument: removed entities get no attention."""

import re

import keras
import numpy as np
import pytest
from keras import ops
from recurrent_networks import GRID, array, sequences, shared

from rrl_tf.errors import InvalidInput
from rrl_tf.models import RecurrentQNetwork, RelationalQNetwork, RelationalVQA

CELLS = GRID[0] * GRID[1]
READ = 5
"""The agent's cell, (1, 2)."""
SEED = np.random.default_rng(0)
VIEWS = SEED.random((2, 4, 5, 6)).astype("float32")
REMOVED = SEED.random((2, 20)) < 0.5
BITS = 5


def a_step(batch=3):
    return {name: value[:, 0] for name, value in sequences(batch, 1).items()}


def removed_cells(batch=3):
    removed = np.random.default_rng(1).random((batch, CELLS)) < 0.5
    removed[:, READ] = False
    return removed


@pytest.mark.parametrize("preset", ["relational-memory-entities", "lstm"])
def test_removed_entities_equal_invisible_ones_in_a_recurrent_network(preset):
    model, step, removed = shared(preset), a_step(), removed_cells()
    hidden = step["observation"].copy()
    hidden.reshape(3, CELLS, -1)[removed, 0] = 1.0
    q, memory = model(step, removed=removed)
    q_hidden, memory_hidden = model({**step, "observation": hidden})
    np.testing.assert_allclose(array(q), array(q_hidden), atol=1e-5)
    np.testing.assert_allclose(array(memory), array(memory_hidden), atol=1e-5)
    assert np.abs(array(q) - array(model(step)[0])).max() > 1e-3


@pytest.mark.parametrize("preset", ["relational-memory-entities", "relational-memory"])
def test_removed_entities_get_no_attention(preset):
    removed = removed_cells()
    _, _, attention = shared(preset)(a_step(), return_attention_scores=True, removed=removed)
    for name, scores in attention.items():
        if name.startswith("round_"):
            assert not np.moveaxis(array(scores), -1, 1)[removed].any()
        elif preset == "relational-memory-entities":
            slots = array(scores).shape[-1] - CELLS - 1
            to_cells = np.moveaxis(array(scores), -1, 1)[:, slots : slots + CELLS]
            assert not to_cells[removed].any()


NETWORKS = {
    "max": {},
    "flatten": {"readout": "flatten"},
    "narrow": {"conv_kernel_size": (2, 2), "conv_filters": (8, 8)},
    "unseen": {"unseen_feature": 0, "readout_cell": (1, 2)},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_removed_entities_get_no_attention_in_any_grid(name):
    model = RelationalQNetwork.from_preset("fast", **NETWORKS[name])
    model.build((None, 4, 5, 6))
    nodes = np.prod(model.grid_shape(VIEWS.shape))
    removed = REMOVED[:, :nodes]
    q, attention = model(VIEWS, return_attention_scores=True, removed=removed)
    np.testing.assert_allclose(array(q), array(model(VIEWS, removed=removed)), atol=1e-5)
    for scores in attention.values():
        scores = np.moveaxis(array(scores), -1, 1)
        assert not scores[removed].any() and scores[~removed].any()


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "narrow"])
def test_removed_entities_do_not_change_the_output(name):
    model = RelationalQNetwork.from_preset("fast", **NETWORKS[name])
    model.build((None, 4, 5, 6))
    changed = VIEWS.copy()
    changed.reshape(2, 20, 6)[REMOVED] += 3.0
    changed[..., 0] = VIEWS[..., 0]  # the same cells stay visible
    read = model.readout_cell and model.readout_cell[0] * 5 + model.readout_cell[1]
    removed = REMOVED & (np.arange(20) != read)
    kept = np.where(removed[..., None], changed.reshape(2, 20, 6), VIEWS.reshape(2, 20, 6))
    _, scores = model(VIEWS, return_attention_scores=True, removed=removed)
    _, others = model(kept.reshape(VIEWS.shape), return_attention_scores=True, removed=removed)
    if name in ("max", "flatten"):  # these readouts also read the removed entities
        for round_, attention in scores.items():
            rows = np.moveaxis(array(attention), 1, 2)[~removed]
            again = np.moveaxis(array(others[round_]), 1, 2)[~removed]
            np.testing.assert_allclose(rows, again, atol=1e-5)
    else:
        q, again = (
            array(model(each, removed=removed)) for each in (VIEWS, kept.reshape(VIEWS.shape))
        )
        np.testing.assert_allclose(q, again, atol=1e-5)


@pytest.mark.parametrize("argument", ["norm", "qkv_norm"])
def test_removing_with_a_joint_norm_is_an_error(argument):
    block = {"num_heads": 2, "key_size": 4, argument: "joint"}
    model = RelationalQNetwork.from_preset("fast", block=block, readout_cell=(1, 2))
    with pytest.raises(InvalidInput, match=f"with a joint norm.*'{argument}': 'joint'"):
        model(VIEWS, removed=REMOVED)


def test_removed_readout_cell_with_max_entities_gives_the_same_output():
    views, removed = VIEWS.copy(), np.zeros((2, 20), bool)
    views[..., 0], removed[:, 13] = 0.0, True
    hidden = views.copy()
    hidden[:, 2, 3, 0] = 1.0
    networks = []
    for bound in (None, 20):
        keras.utils.set_random_seed(0)
        arguments = {"unseen_feature": 0, "readout_cell": (2, 3), "max_entities": bound}
        networks.append(RelationalQNetwork.from_preset("fast", **arguments))
        networks[-1].build((None, 4, 5, 6))
    for seen, options in ((views, {"removed": removed}), (hidden, {})):
        everything, bounded = (array(network(seen, **options)) for network in networks)
        np.testing.assert_allclose(bounded, everything, atol=1e-5)
        assert np.abs(everything - array(networks[0](views))).max() > 1e-4


def small_vqa():
    return RelationalVQA(4, (4, 8), cell_units=(8,), width=8, hidden_units=(8,))


def vqa_inputs():
    return {"images": np.ones((2, 9, 9, 3)), "questions": np.ones((2, 3, BITS))}


@pytest.mark.parametrize(
    ("model", "inputs", "wanted"),
    [
        (lambda: RelationalQNetwork.from_preset("fast"), lambda: VIEWS, (2, 20)),
        (lambda: shared("lstm"), lambda: a_step(2), (2, CELLS)),
        (small_vqa, vqa_inputs, (2, 1)),
    ],
)
@pytest.mark.parametrize("shape", [(3, 20), (20,), (2, 4, 5)])
def test_removed_of_another_shape_is_an_error(model, inputs, wanted, shape):
    told = f"`removed` must be an array of bools (B, N), one for each entity, here {wanted}"
    with pytest.raises(InvalidInput, match=re.escape(f"{told}; received {shape}")):
        model()(inputs(), removed=np.zeros(shape, bool))


@pytest.mark.parametrize(
    ("removed", "told"),
    [
        (np.full((2, 20), np.nan, "float32"), r"\(2, 20\) of .*float32"),
        (np.full((2, 20), 7), r"\(2, 20\) of .*int"),
        ([[True] * 20] * 2, "received list"),
        (True, "received bool"),
    ],
)
def test_removed_of_another_dtype_is_an_error(removed, told):
    model = RelationalQNetwork.from_preset("fast")
    with pytest.raises(InvalidInput, match=f"must be an array of bools .*{told}"):
        model(VIEWS, removed=removed)


def test_removing_with_a_dense_encoder_is_an_error():
    model = RecurrentQNetwork.from_preset("lstm-dense", num_actions=2)
    step = {"observation": ops.ones((1, 4)), "previous_action": ops.zeros((1,), "int32")}
    with pytest.raises(InvalidInput, match="no entities to remove"):
        model({**step, "previous_reward": ops.zeros((1,))}, removed=np.zeros((1, 4), bool))


def test_functional_model_with_removed_entities():
    model = RelationalQNetwork.from_preset("fast", unseen_feature=0, readout_cell=(1, 2))
    view = keras.Input((4, 5, 6))
    removed = keras.Input((20,), dtype="bool")
    functional = keras.Model([view, removed], model(view, removed=removed))
    found, expected = functional([VIEWS, REMOVED]), model(VIEWS, removed=REMOVED)
    np.testing.assert_allclose(array(found), array(expected), atol=1e-5)
    question = {"images": keras.Input((9, 9, 3)), "questions": keras.Input((None, BITS))}
    removed = keras.Input((1,), dtype="bool")
    answers = small_vqa()(question, removed=removed)
    assert tuple(answers.shape) == (None, None, 4)
    functional = keras.Model([question, removed], answers)
    found = functional([vqa_inputs(), np.ones((2, 1), bool)])
    assert tuple(found.shape) == (2, 3, 4)
