"""RelationalQNetwork: architectures, readouts, heads and visible cells."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.models import RelationalQNetwork
from rrl_tf.models.architectures import RELATIONAL_Q_NETWORK

SHAPES = {"book": (7, 7, 3), "zambaldi": (7, 7, 3), "fast": (7, 7, 20)}
AGENT, KEY = (3, 6), (2, 3)
# Has the attributes that a network reads from a preprocessor.
SEEN = SimpleNamespace(shape=(7, 7, 20), unseen_feature=0, agent_cell=AGENT, agent_feature=None)


def array(tensor):
    return ops.convert_to_numpy(tensor)


def network(preset, shape=None, preprocessor=SEEN, **overrides):
    model = RelationalQNetwork.from_preset(preset, preprocessor, **overrides)
    model.build((None, *(shape or SHAPES[preset])))
    return model


def observation(shape, batch=2, seed=0):
    return np.random.default_rng(seed).random((batch, *shape)).astype("float32")


@pytest.mark.parametrize(
    ("preset", "shape", "parameters"),
    [
        ("book", (7, 7, 3), 91_597),
        ("zambaldi", (7, 7, 3), 217_661),
        ("zambaldi", (14, 14, 3), 217_661),
        ("fast", (7, 7, 20), 13_190),
        ("fast", (7, 7, 24), 13_190 + 4 * 32),
        ("fast", (7, 7, 80), 13_190 + 60 * 32),
        ("grid", (6, 6, 4), 14_899),
    ],
)
@pytest.mark.parametrize("preprocessor", [None, SEEN])
def test_architectures_have_their_number_of_parameters(preset, shape, parameters, preprocessor):
    assert network(preset, shape, preprocessor).count_params() == parameters


@given(
    unseen=st.one_of(st.none(), st.integers(0, 19)),
    cell=st.one_of(st.none(), st.tuples(st.integers(0, 6), st.integers(0, 6))),
)
def test_fast_takes_unseen_feature_and_agent_cell_from_the_preprocessor(unseen, cell):
    preprocessor = SimpleNamespace(unseen_feature=unseen, agent_cell=cell, agent_feature=None)
    model = RelationalQNetwork.from_preset("fast", preprocessor)
    assert (model.unseen_feature, model.readout_cell) == (unseen, cell)
    assert model.readout == ("max" if cell is None else "cell")
    for preset in ("book", "zambaldi"):
        asked = RelationalQNetwork.from_preset(preset, preprocessor).get_config()
        assert asked == {
            **RelationalQNetwork.from_preset(preset).get_config(),
            "name": asked["name"],
        }


@pytest.mark.parametrize(
    ("preprocessor", "overrides", "expected"),
    [
        (None, {}, (None, "max", None)),
        (None, {"readout_cell": (1, 2)}, (None, "cell", (1, 2))),
        (None, {"unseen_feature": 3, "readout": "flatten"}, (3, "flatten", None)),
        (SEEN, {"unseen_feature": None}, (None, "cell", AGENT)),
        (SEEN, {"readout": "max"}, (0, "max", None)),
        (SEEN, {"readout_cell": None}, (0, "max", None)),
        (SEEN, {"readout_cell": (1, 2), "readout": "cell"}, (0, "cell", (1, 2))),
    ],
)
def test_overrides_win_over_the_preprocessor(preprocessor, overrides, expected):
    model = RelationalQNetwork.from_preset("fast", preprocessor, **overrides)
    assert (model.unseen_feature, model.readout, model.readout_cell) == expected


def marked(preprocessor, **overrides):
    """Return the network `fast` for a preprocessor that marks the agent by feature 4."""
    known = SimpleNamespace(**{**vars(preprocessor), "agent_feature": 4})
    return RelationalQNetwork.from_preset("fast", known, **overrides)


@pytest.mark.parametrize(
    ("cell", "overrides", "expected"),
    [
        (None, {}, ("feature", None, 4)),
        (None, {"readout": "max"}, ("max", None, None)),
        (None, {"readout_feature": None}, ("max", None, None)),
        (None, {"readout_feature": 7}, ("feature", None, 7)),
        (None, {"readout_cell": (1, 2)}, ("cell", (1, 2), None)),
        (AGENT, {}, ("cell", AGENT, None)),
        (AGENT, {"readout": "feature"}, ("feature", None, 4)),
    ],
)
def test_preprocessor_with_an_agent_feature_sets_the_feature_readout(cell, overrides, expected):
    model = marked(SimpleNamespace(unseen_feature=None, agent_cell=cell), **overrides)
    assert (model.readout, model.readout_cell, model.readout_feature) == expected


@pytest.mark.parametrize("cell", [(0, 0), (2, 5), (6, 6)])
def test_feature_readout_equals_cell_readout(cell):
    x = observation((7, 7, 20))
    x[..., 4] = 0
    x[:, cell[0], cell[1], 4] = 1
    model = marked(SimpleNamespace(unseen_feature=None, agent_cell=None))
    plain = RelationalQNetwork.from_preset("fast", readout_cell=cell)
    model(x), plain(x)
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(array(model(x)), array(plain(x)), rtol=1e-5, atol=1e-6)


def test_weights_fit_with_and_without_a_preprocessor():
    model, plain = network("fast"), network("fast", preprocessor=None)
    assert [w.path.split("/", 1)[1] for w in model.weights] == [
        w.path.split("/", 1)[1] for w in plain.weights
    ]
    plain.set_weights(model.get_weights())
    plain.readout, plain.readout_cell, plain.unseen_feature = "cell", AGENT, 0
    x = observation((7, 7, 20))
    np.testing.assert_array_equal(array(plain(x)), array(model(x)))


@pytest.mark.parametrize("preset", RELATIONAL_Q_NETWORK)
def test_architectures_have_source_and_description(preset):
    entry = RELATIONAL_Q_NETWORK[preset]
    assert len(entry["source"]) > 20
    assert RelationalQNetwork.presets[preset] == entry["description"]


def test_book_values_stay_above_minus_one():
    model = network("book")
    model.head.bias.assign(np.full(5, -50.0))
    np.testing.assert_allclose(array(model(observation((7, 7, 3)))), -1.0, atol=1e-5)


def test_dueling_head_is_value_plus_centred_advantage():
    model = network("fast")
    model.head.bias.assign([0.5, 1.0, 2.0, 3.0, 4.0, 5.0])
    model.head.kernel.assign(np.zeros(model.head.kernel.shape))
    q = array(model(observation((7, 7, 20))))
    np.testing.assert_allclose(q, 0.5 + np.tile([-2.0, -1.0, 0.0, 1.0, 2.0], (2, 1)), atol=1e-5)


def test_max_readout_ignores_the_order_of_nodes_and_flatten_does_not():
    x = observation((7, 7, 3))
    for readout, forgets in (("max", True), ("flatten", False)):
        model = network(
            "fast",
            (7, 7, 3),
            position_embedding=False,
            preprocessor=None,
            readout=readout,
        )
        assert np.allclose(array(model(x)), array(model(x[:, ::-1])), atol=1e-5) == forgets


def test_attention_readout_reads_visible_cells_that_are_not_removed():
    model = network("grid", (4, 5, 20), SEEN, conv_kernel_size=1)
    for weight in model.weights:
        weight.assign(np.random.default_rng(0).normal(scale=0.2, size=weight.shape))
    x = observation((4, 5, 20))
    x[..., 0] = 0
    x[:, 0, :, 0] = 1  # the first row is not visible
    removed = np.zeros((2, 20), bool)
    removed[:, 7] = True
    q, attention = model(x, return_attention_scores=True, removed=removed)
    weights = array(attention["readout"])
    assert weights.shape == (2, 4, 1, 20)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert weights[..., :5].max() == weights[..., 7].max() == 0
    assert weights[..., 8:].min() > 0
    # The content of unseen cells does not change the Q values.
    x[:, 0, :, 1:] = 7
    np.testing.assert_allclose(array(model(x, removed=removed)), array(q), rtol=1e-4, atol=1e-4)


def test_attention_readout_is_0_if_no_cell_is_visible():
    model = network("grid", (4, 5, 20), SEEN)
    x = observation((4, 5, 20))
    x[..., 0] = 1
    q, attention = model(x, return_attention_scores=True)
    assert np.abs(array(attention["readout"])).max() == 0
    x[..., 1:] = 7
    np.testing.assert_array_equal(array(model(x)), array(q))


def test_grid_depends_on_positions_and_takes_grids_of_any_size():
    model = network("grid", (6, 6, 4), None)
    for shape in ((6, 6, 4), (5, 10, 4)):
        x = observation(shape)
        q = model(x)
        assert not np.allclose(array(q), array(model(x[:, ::-1])), atol=1e-5)


def test_zambaldi_takes_grids_of_any_size():
    model = network("zambaldi")
    q, attention = model(observation((4, 5, 3)), return_attention_scores=True)
    assert q.shape == (2, 5)
    assert sorted(attention) == ["round_1", "round_2"]
    assert attention["round_1"].shape == (2, 2, 20, 20)


def test_relative_positions_take_grids_of_any_size():
    model = network("fast-relative", (7, 7, 3), preprocessor=None)
    assert not model.position_embedding
    for block in model.relations.blocks:
        table = block.position_bias.embeddings
        table.assign(np.random.default_rng(0).normal(size=table.shape))
    for shape in ((7, 7, 3), (4, 5, 3), (9, 9, 3)):
        x = observation(shape)
        q, attention = model(x, return_attention_scores=True)
        cells = shape[0] * shape[1]
        assert q.shape == (2, 5) and attention["round_2"].shape == (2, 2, cells, cells)
        assert not np.allclose(array(model(x[:, ::-1])), array(q), atol=1e-5)


def test_zambaldi_pads_above_and_to_the_left():
    # Each output cell depends on itself and its upper left neighbours.
    model = network("zambaldi", conv_filters=(24,))
    x = np.zeros((1, 3, 3, 3), "float32")
    x[0, 1, 1] = 1.0
    pad, convolution, _ = model.grid_layers
    change = array(convolution(pad(x))) - array(convolution(pad(0 * x)))
    changed = np.abs(change[0]).max(axis=-1) > 0
    np.testing.assert_array_equal(changed, [[0, 0, 0], [0, 1, 1], [0, 1, 1]])


@pytest.mark.parametrize(("padding", "known"), [("top_left", {0, 1}), ("same", {-1, 0, 1})])
def test_padding_determines_the_neighbours_of_a_cell(padding, known):
    kernel = len(known)
    model = network("fast", conv_kernel_size=kernel, conv_padding=padding)
    x = observation(SHAPES["fast"])

    def cells(x):
        for layer in model.grid_layers:
            x = layer(x)
        return array(x)[0]

    there = x.copy()
    there[0, 3, 3] += 1.0
    rows, columns = np.nonzero((cells(there) != cells(x)).any(axis=-1))
    assert cells(x).shape[:2] == x.shape[1:3]
    assert set(zip(rows - 3, columns - 3)) == {(i, j) for i in known for j in known}


def test_valid_padding_shrinks_the_grid():
    model = network("zambaldi", conv_padding="valid")
    symbol = keras.Input((7, 6, 3))
    _, symbols = model(symbol, return_attention_scores=True)
    _, attention = model(observation((7, 6, 3)), return_attention_scores=True)
    assert attention["round_2"].shape == (2, 2, 20, 20)
    assert symbols["round_2"].shape == (None, 2, 20, 20)


def attention_rows_when_the_key_moves(preset, **overrides):
    """Return how much each node's attention changes if the key moves by two cells."""
    model = network(preset, **overrides)
    rng = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(rng.normal(0.0, 0.3, size=weight.shape))
    before = np.zeros((1, *SHAPES[preset]), "float32")
    before[..., 0] = 0.2
    after = before.copy()
    looks_like_a_key = np.linspace(0.4, 1.0, SHAPES[preset][-1])
    before[0, KEY[0], KEY[1]] = after[0, KEY[0] + 2, KEY[1]] = looks_like_a_key
    scores = [
        array(model(view, return_attention_scores=True)[1]["round_1"]) for view in (before, after)
    ]
    return np.abs(scores[1] - scores[0]).max(axis=(0, 1, 3))


@pytest.mark.parametrize(
    ("preset", "overrides"),
    [("fast", {}), ("zambaldi", {}), ("fast", {"block": {"score": "additive"}})],
)
def test_moving_the_key_changes_the_agents_attention(preset, overrides):
    change = attention_rows_when_the_key_moves(preset, **overrides)
    assert change[AGENT[0] * 7 + AGENT[1]] > 1e-3


def test_moving_the_key_does_not_change_the_agents_attention_with_book_score():
    # Without the joint norm, which would make all nodes depend on each other.
    change = attention_rows_when_the_key_moves("book", block={"qkv_norm": None})
    moved = [x * 7 + KEY[1] for x in (KEY[0], KEY[0] + 2)]
    assert (change[moved] > 1e-3).all()
    assert np.delete(change, moved).max() < 1e-6


def test_invisible_cells_get_no_attention_and_change_nothing():
    model = network("fast")
    x = observation((7, 7, 20), seed=1)
    x[..., 0] = 0
    x[:, 0, :, 0] = 1  # the first row is not visible
    changed = x.copy()
    changed[:, 0, :, 1:] += 1
    q, attention = model(x, return_attention_scores=True)
    np.testing.assert_allclose(array(q), array(model(changed)), atol=1e-6)
    for scores in attention.values():
        assert array(scores)[..., :7].max() == 0
        np.testing.assert_allclose(array(scores)[..., 7:].sum(-1), 1, atol=1e-5)
    x[:, 0, :, 0] = 0  # the same change to visible cells has an effect
    changed[:, 0, :, 0] = 0
    assert np.abs(array(model(x)) - array(model(changed))).max() > 1e-4


def test_cell_readout_depends_on_other_cells_by_attention_only():
    model = network("fast")
    x = observation((7, 7, 20), seed=2)
    x[..., 0] = 0
    elsewhere = x.copy()
    elsewhere[:, KEY[0], KEY[1], 1:] += 1
    assert np.abs(array(model(x)) - array(model(elsewhere))).max() > 1e-4
    for block in model.relations.rounds:
        for weight in block.attention.weights:
            weight.assign(np.zeros(weight.shape))
    np.testing.assert_allclose(array(model(x)), array(model(elsewhere)), atol=1e-6)
    here = x.copy()
    here[:, AGENT[0], AGENT[1], 1:] += 1
    assert np.abs(array(model(x)) - array(model(here))).max() > 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"readout_cell": (7, 0)}, r"inside the 7 x 7 grid.*\(7, 0\)"),
        (
            {"readout": "feature", "readout_cell": None, "readout_feature": -1},
            "`readout_feature`.*one of the 20 features.*-1",
        ),
        ({"unseen_feature": 20}, "one of the 20 features.*20"),
        ({"conv_kernel_size": 2}, "keep the size.*conv_kernel_size=.2,"),
    ],
)
def test_building_with_bad_features_and_cells_is_an_error(arguments, message):
    with pytest.raises(InvalidInput, match=f"(?s){message}"):
        network("fast", **arguments)


@pytest.mark.parametrize("preset", SHAPES)
def test_single_observation_equals_its_row_of_a_batch(preset):
    model, x = network(preset), observation(SHAPES[preset], batch=4)
    alone = np.concatenate([array(model(x[i : i + 1])) for i in range(4)])
    np.testing.assert_allclose(alone, array(model(x)), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_actions": 0}, "num_actions.*0"),
        ({"conv_filters": (32, 0)}, "conv_filters.*0"),
        ({"conv_kernel_size": 0}, "conv_kernel_size.*0"),
        ({"conv_padding": "full"}, "conv_padding.*same.*top_left.*'full'"),
        ({"readout": "mean"}, "readout.*flatten.*'mean'"),
        (
            {"readout": "max", "readout_cell": AGENT},
            r"readout_cell.*\(3, 6\) and readout='max'",
        ),
        ({"readout": "cell", "readout_cell": None}, "readout_cell.*'cell'; received None"),
        ({"readout": "feature"}, "readout_feature.*'feature'; received None"),
        ({"readout": "cell"}, "readout_cell.*'cell'; received None"),
        ({"hidden_units": (-1,)}, "hidden_units.*-1"),
        ({"num_rounds": 0}, "num_rounds.*0"),
        ({"block": {"num_heads": 0}}, "num_heads.*0"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(InvalidInput, match=f"(?s){message}"):
        RelationalQNetwork.from_preset("fast", **arguments)


@pytest.mark.parametrize("shape", [(7, 7, 20), (1, 7, 20), (1, 7, 7, 3), (1, 6, 7, 20)])
def test_observation_of_another_shape_is_an_error(shape):
    model = network("fast")
    with pytest.raises(ValueError, match="incompatible") as error:
        model(np.zeros(shape, "float32"))
    assert str(shape) in str(error.value)


def test_building_for_another_rank_is_an_error():
    with pytest.raises(ValueError, match=r"\(B, height, width, F\).*\(7, 3\)"):
        RelationalQNetwork.from_preset("book").build((7, 3))
    with pytest.raises(ValueError, match="known size"):
        RelationalQNetwork.from_preset("fast", SEEN, position_embedding=False).build(
            (None, None, None, 20)
        )
