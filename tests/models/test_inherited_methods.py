"""Methods that the models inherit from Keras, with the inputs that the models document."""

import keras
import numpy as np
import pytest
from keras import ops

from rrl_tf.errors import InvalidInput
from rrl_tf.models import (
    BehaviorCloning,
    ConvolutionalVQA,
    DecisionTransformer,
    MLPClassifier,
    MultiInputQNetwork,
    RecurrentQNetwork,
)

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


WINDOW = {
    "states": normal(3, 5, 4),
    "actions": normal(3, 5, 3),
    "returns_to_go": normal(3, 5, 1),
    "timesteps": np.array([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [0, 0, 0, 0, 1]], "int32"),
    "mask": np.array([[1] * 5, [1] * 5, [0, 0, 0, 1, 1]], "float32"),
}
STEP = {
    "observation": normal(3, 6),
    "previous_action": np.array([-1, 0, 2], "int32"),
    "previous_reward": normal(3),
}


def decision_transformer(**kwargs):
    return DecisionTransformer(4, 3, width=8, num_blocks=1, num_heads=2, **kwargs)


def recurrent():
    core, encoder = {"units": 5}, {"hidden_units": (6,)}
    return RecurrentQNetwork(3, "lstm", core, "dense", encoder, hidden_units=(8,))


def multi_input():
    encoders = {
        "grid": {"encoder": "relational", "conv_filters": (4,)},
        "image": {"encoder": "dense", "convolutions": ((3, 2, 1),), "hidden_units": (5,)},
    }
    return MultiInputQNetwork(3, encoders, hidden_units=(8,))


MODELS = {
    "multi-input": (multi_input, {"grid": normal(3, 4, 4, 2), "image": normal(3, 5, 5, 1)}),
    "decision-transformer": (decision_transformer, WINDOW),
    "behavior-cloning": (lambda: BehaviorCloning(4, 3, (6,)), WINDOW),
    "recurrent": (recurrent, STEP),
    "vqa": (
        lambda: ConvolutionalVQA(5, (4,), (3,), (2,), hidden_units=(7,)),
        {"images": normal(3, 6, 6, 3), "questions": normal(3, 2, 8)},
    ),
    "images": (lambda: MLPClassifier(3, (8,)), normal(3, 4, 4, 1)),
}
every_model = pytest.mark.parametrize(("make", "x"), MODELS.values(), ids=MODELS)


def first(x, count):
    return keras.tree.map_structure(lambda array: array[:count], x)


def assert_equal(results, expected):
    results, expected = keras.tree.flatten(results), keras.tree.flatten(expected)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected):
        np.testing.assert_allclose(
            ops.convert_to_numpy(result), ops.convert_to_numpy(wanted), atol=1e-5
        )


@pytest.mark.tf_only
@pytest.mark.parametrize("built_by", ["call", "load"])
@every_model
def test_export_takes_the_documented_inputs(make, x, built_by, tmp_path):
    import tensorflow as tf

    model = make()
    model(x)
    if built_by == "load":
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras")
    model.export(tmp_path / "export", verbose=False)
    exported = tf.saved_model.load(tmp_path / "export")
    for count in (3, 1):
        few = first(x, count)
        arguments = [keras.tree.map_structure(tf.constant, few)]
        if isinstance(model, RecurrentQNetwork):
            arguments.append(tf.constant(normal(count, model.memory_size)))
        expected = model(*arguments)
        assert_equal(exported.serve(*arguments), expected)
        if isinstance(x, dict):
            named = {**arguments[0], **({"memory": arguments[1]} if arguments[1:] else {})}
            results = exported.signatures["serving_default"](**named)
            assert_equal([results[name] for name in sorted(results)], expected)


@pytest.mark.tf_only
def test_export_of_a_network_that_unroll_has_built(tmp_path):
    import tensorflow as tf

    model = recurrent()
    model.unroll({name: array[:, None] for name, array in STEP.items()})
    model.export(tmp_path, verbose=False)
    memory = model.initial_memory(3)
    exported = tf.saved_model.load(tmp_path)
    step = {name: tf.constant(array) for name, array in STEP.items()}
    assert_equal(exported.serve(step, memory), model(STEP))


@pytest.mark.tf_only
def test_export_takes_float32_under_a_mixed_policy(tmp_path):
    import tensorflow as tf

    model = decision_transformer(dtype="mixed_bfloat16")
    model(WINDOW)
    model.export(tmp_path, verbose=False)
    _, inputs = (
        tf.saved_model.load(tmp_path).signatures["serving_default"].structured_input_signature
    )
    dtypes = {name: spec.dtype.name for name, spec in inputs.items()}
    assert dtypes == {name: array.dtype.name for name, array in WINDOW.items()}


def test_export_without_shapes_is_an_error(tmp_path):
    model = BehaviorCloning(4, 3, (6,))
    model.build()
    with pytest.raises(InvalidInput, match="`input_signature` must be given"):
        model.export(tmp_path)


@every_model
def test_summary_and_output_shape(make, x):
    model = make()
    results = model(x)
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(str(line)), expand_nested=True)
    assert "Total params" in "".join(lines)
    shapes = model.compute_output_shape(keras.tree.map_structure(lambda part: part.shape, x))
    wanted = [part.shape for part in keras.tree.flatten(results)]
    found = keras.tree.map_shape_structure(keras.KerasTensor, shapes)
    assert [part.shape for part in keras.tree.flatten(found)] == wanted


@every_model
def test_predict_takes_the_documented_inputs(make, x):
    model = make()
    assert_equal(model.predict(x, batch_size=2, verbose=0), model(x))


def test_summary_of_a_network_with_an_image_encoder():
    block = {"num_heads": 2, "key_size": 3}
    encoder = {"conv_filters": (8,), "block": block}
    model = RecurrentQNetwork(3, "none", {"units": 5}, encoder_arguments=encoder)
    model.build({"observation": (None, 4, 4, 3)})
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(str(line)))
    assert "encoder" in "".join(lines)
