"""Q networks of dict observations: encoders per part, attention, saving and errors."""

import keras
import numpy as np
import pytest
from keras import ops
from recurrent_networks import array

from rrl_tf.envs.preprocessing import Preprocessor
from rrl_tf.errors import InvalidInput
from rrl_tf.models import MultiInputQNetwork, RecurrentQNetwork
from rrl_tf.models.encoders import encoders_of

SHAPES = {"grid": (3, 4, 5), "speed": (2,)}
PARTS = {name: Preprocessor(lambda x: x, shape) for name, shape in SHAPES.items()}
PARTS["grid"] = Preprocessor(lambda x: x, SHAPES["grid"], unseen_feature=0, agent_cell=(1, 2))
PREPROCESSOR = Preprocessor(lambda x: x, SHAPES, parts=PARTS)


def observation(batch=2, leading=(), seed=0):
    rng = np.random.default_rng(seed)
    parts = {name: rng.random((batch, *leading, *shape)) for name, shape in SHAPES.items()}
    return {name: part.astype("float32") for name, part in parts.items()}


def network(grids="fast"):
    keras.utils.set_random_seed(0)
    model = MultiInputQNetwork.for_preprocessor(PREPROCESSOR, grids, num_actions=3)
    model.build(PREPROCESSOR.batch_shape(None))
    return model


@pytest.mark.parametrize("name", SHAPES)
def test_q_values_depend_on_every_part(name):
    model, x = network(), observation()
    other = {**x, name: observation(seed=1)[name]}
    assert not np.allclose(array(model(x)), array(model(other)))


def test_grids_return_their_attention():
    model, x = network(), observation()
    q, scores = model(x, return_attention_scores=True)
    np.testing.assert_allclose(array(q), array(model(x)), rtol=1e-5, atol=1e-6)
    assert scores.keys() == {"grid_round_1", "grid_round_2"}
    for each in scores.values():
        assert each.shape == (2, 2, 12, 12)
        np.testing.assert_allclose(array(ops.sum(each, axis=-1)), 1, rtol=1e-5)


def test_encoders_fit_the_parts():
    picture = Preprocessor(lambda x: x, (40, 36, 3))
    whole = Preprocessor(lambda x: x, {}, parts={**PARTS, "camera": picture})
    found = encoders_of(whole, "fast")
    assert {name: each["encoder"] for name, each in found.items()} == {
        "grid": "relational",
        "speed": "dense",
        "camera": "dense",
    }
    assert (found["grid"]["unseen_feature"], found["grid"]["readout_cell"]) == (0, (1, 2))
    assert len(found["camera"]["convolutions"]) == 3 and "convolutions" not in found["speed"]
    assert encoders_of(whole, "dense")["camera"] == {"encoder": "dense", "hidden_units": (64,)}


@pytest.mark.parametrize("grids", ["dense", "convolutional", "zambaldi", "grid"])
def test_other_encoders_take_the_grid(grids):
    x = observation()
    q, scores = network(grids)(x, return_attention_scores=True)
    assert q.shape == (2, 3) and bool(scores) == (grids in ("zambaldi", "grid"))


def test_a_saved_network_returns_the_same_numbers(tmp_path):
    model, x = network(), observation()
    model.save_to_preset(tmp_path / "saved")
    loaded = MultiInputQNetwork.from_preset(tmp_path / "saved")
    np.testing.assert_array_equal(array(loaded(x)), array(model(x)))


@pytest.mark.parametrize("grid_encoder", ["lstm", "lstm-dense"])
def test_a_recurrent_network_unrolls_dicts_like_single_steps(grid_encoder):
    keras.utils.set_random_seed(0)
    core = {"units": 4}
    model = RecurrentQNetwork.from_preset(
        grid_encoder, PREPROCESSOR, num_actions=3, core_arguments=core
    )
    times = 3
    inputs = {
        "observation": observation(leading=(times,)),
        "previous_action": np.array([[-1, 0, 2], [1, 2, 0]], "int32"),
        "previous_reward": np.ones((2, times), "float32"),
    }
    q, _ = model.unroll(inputs)
    memory = None
    for t in range(times):
        step = keras.tree.map_structure(lambda x, t=t: x[:, t], inputs)
        q_t, memory, scores = model(step, memory, return_attention_scores=True)
        np.testing.assert_allclose(array(q_t), array(q)[:, t], rtol=1e-4, atol=1e-5)
    assert ("grid_round_1" in scores) == (grid_encoder == "lstm")
    with pytest.raises(InvalidInput, match=r"must have the parts \['grid', 'speed'\]"):
        model.unroll({**inputs, "observation": {"grid": inputs["observation"]["grid"]}})


def test_architecture_of_a_recurrent_network_has_no_weights_to_load():
    model = RecurrentQNetwork.from_preset("lstm-dense", PREPROCESSOR, load_weights=False)
    assert model.encoder == "multi_input"
    with pytest.raises(InvalidInput, match="`load_weights` must be None or False for an arch"):
        RecurrentQNetwork.from_preset("lstm-dense", PREPROCESSOR, load_weights=True)


@pytest.mark.parametrize(
    ("encoders", "message"),
    [
        ({"speed": {"encoder": "window"}}, r"`encoder` must be one of \('relational', 'dense'\)"),
        ({"speed": {"units": 3}}, "`encoder` must be one of"),
        ({"speed": {"encoder": "dense", "units": 3}}, r"`encoders\['speed'\]` must be a dict of"),
        ({"speed": {"encoder": "dense"}}, r"must be a dict of \['speed'\]; received the shape"),
    ],
)
def test_wrong_encoders_raise(encoders, message):
    with pytest.raises(InvalidInput, match=message):
        MultiInputQNetwork(3, encoders).build(PREPROCESSOR.batch_shape(None))


@pytest.mark.tf_only
def test_a_recurrent_network_exports_dicts(tmp_path):
    import tensorflow as tf

    model = RecurrentQNetwork.from_preset(
        "lstm", PREPROCESSOR, num_actions=3, core_arguments={"units": 4}
    )
    step = {
        "observation": observation(),
        "previous_action": np.array([-1, 2], "int32"),
        "previous_reward": np.ones(2, "float32"),
    }
    memory = model.initial_memory(2)
    expected, _ = model(step, memory)
    model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    served = loaded.serve(keras.tree.map_structure(tf.constant, step), memory)
    np.testing.assert_allclose(array(served[0]), array(expected), rtol=1e-5, atol=1e-6)
