"""The models of TensorFlow Serving's own tests, rebuilt as small SavedModels."""

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

v1 = tf.compat.v1
PREDICT, CLASSIFY, REGRESS = (
    f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress")
)
VERSION = "00000123"
FLOAT, INT, STRING = tf.float32, tf.int32, tf.string


def write_models(base):
    """Write the versions of each model to `base/NAME/VERSION`."""
    for version in (VERSION, "00000124"):
        save_graph(base / "half_plus_two" / version, half_plus(2.0))
    save_graph(base / "half_plus_three" / VERSION, half_plus(3.0))
    save_graph(base / "counter" / VERSION, counter)
    save_graph(base / "classifier" / VERSION, classifier)
    save_graph(base / "regressor" / VERSION, regressor)
    save_graph(base / "tensors" / VERSION, tensors)
    save_half_plus_two_tf2(base / "half_plus_two_tf2" / VERSION)
    save_functions(base)


def save_graph(directory, build):
    """Save the graph that a function builds.

    Args:
        directory: The version directory.
        build: Function that returns signature name -> (inputs, outputs, method name); inputs and
            outputs are dicts of tensors.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        signatures = {name: _signature_def(*parts) for name, parts in build().items()}
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()


def _signature_def(inputs, outputs, method=PREDICT):
    def info(tensor):
        dtype, shape = tensor.dtype.as_datatype_enum, tensor.shape.as_proto()
        return meta_graph_pb2.TensorInfo(name=tensor.name, dtype=dtype, tensor_shape=shape)

    return meta_graph_pb2.SignatureDef(
        inputs={name: info(tensor) for name, tensor in inputs.items()},
        outputs={name: info(tensor) for name, tensor in outputs.items()},
        method_name=method,
    )


def half_plus(constant):
    """Return a builder of y = x / 2 + constant, y2 = x / 2 + constant + 1, y3 = x2 / 2 + 3."""

    def build():
        examples = v1.placeholder(STRING, name="tf_example")  # any shape, as in the original
        features = tf.io.parse_example(
            tf.reshape(examples, [-1]),
            {
                "x": tf.io.FixedLenFeature([1], FLOAT),
                "x2": tf.io.FixedLenFeature([1], FLOAT, default_value=[0.0]),
            },
        )
        half, added = v1.Variable(0.5, name="a"), v1.Variable(constant, name="b")
        x, x2 = (tf.identity(features[name], name) for name in ("x", "x2"))
        y = tf.identity(half * x + added, "y")
        y2 = tf.identity(half * x + added + 1.0, "y2")
        y3 = tf.identity(half * x2 + 3.0, "y3")
        return {
            "serving_default": ({"x": x}, {"y": y}),
            "regress_x_to_y": ({"inputs": examples}, {"outputs": y}, REGRESS),
            "regress_x_to_y2": ({"inputs": examples}, {"outputs": y2}, REGRESS),
            "regress_x2_to_y3": ({"inputs": x2}, {"outputs": y3}, REGRESS),
            "classify_x_to_y": ({"inputs": examples}, {"scores": y}, CLASSIFY),
            "classify_x2_to_y3": ({"inputs": x2}, {"scores": y3}, CLASSIFY),
        }

    return build


def counter():
    """Build a stateful model: its signatures read, increase and reset a variable."""
    value, delta = v1.Variable(0.0, name="counter"), v1.placeholder(FLOAT, name="delta")
    return {
        "get_counter": ({}, {"output": value.read_value()}),
        "incr_counter": ({}, {"output": tf.identity(value.assign_add(1.0))}),
        "incr_counter_by": ({"delta": delta}, {"output": tf.identity(value.assign_add(delta))}),
        "reset_counter": ({}, {"output": tf.identity(value.assign(0.0))}),
    }


def classifier():
    """Build signatures that return the features "class" and "score" of each example."""
    examples = v1.placeholder(STRING, [None], name="input")
    specs = {"class": tf.io.VarLenFeature(STRING), "score": tf.io.VarLenFeature(FLOAT)}
    features = tf.io.parse_example(examples, specs)
    classes, scores = (tf.sparse.to_dense(features[name]) for name in ("class", "score"))
    deep = tf.tile(scores[:, :, None], [1, 1, 10])
    wide = tf.concat([scores, scores[:, :1]], axis=1)
    with tf.control_dependencies([v1.Assert(False, ["Run totally failed"])]):
        failing = tf.identity(scores)
    outputs = {
        "serving_default": {"classes": classes, "scores": scores},
        "plus_one": {"classes": classes, "scores": scores + 1.0},
        "classes_only": {"classes": classes},
        "scores_only": {"scores": scores},
        "deep_scores": {"classes": classes, "scores": deep},
        "one_row_of_classes": {"classes": classes[:1], "scores": scores},
        "one_row_of_scores": {"classes": classes, "scores": scores[:1]},
        "classes_are_floats": {"classes": scores, "scores": scores},
        "scores_are_strings": {"classes": classes, "scores": classes},
        "more_scores": {"classes": classes, "scores": wide},
        "fails": {"classes": classes, "scores": failing},
    }
    signatures = {name: ({"inputs": examples}, each, CLASSIFY) for name, each in outputs.items()}
    signatures["regression"] = ({"inputs": examples}, {"outputs": scores}, REGRESS)
    signatures["nothing"] = ({}, {}, "")
    return signatures | _other_methods(*signatures["serving_default"][:2])


def regressor():
    """Build signatures that return the feature "output" of each example."""
    examples = v1.placeholder(STRING, [None], name="input")
    specs = {"output": tf.io.FixedLenFeature([], FLOAT)}
    values = tf.io.parse_example(examples, specs)["output"]
    with tf.control_dependencies([v1.Assert(False, ["Run totally failed"])]):
        failing = tf.identity(values)
    outputs = {
        "serving_default": values,
        "plus_one": values + 1.0,
        "matrix": tf.tile(values[:, None], [1, 10]),
        "one_more": tf.concat([values, [0.0]], axis=0),
        "strings": tf.strings.as_string(values),
        "fails": failing,
    }
    signatures = {
        name: ({"inputs": examples}, {"outputs": each}, REGRESS) for name, each in outputs.items()
    }
    classes = {"classes": outputs["strings"]}
    signatures["classification"] = ({"inputs": examples}, classes, CLASSIFY)
    signatures["nothing"] = ({}, {}, "")
    return signatures | _other_methods(*signatures["serving_default"][:2])


def _other_methods(inputs, outputs):
    return {
        "unknown_method": (inputs, outputs, "not/supported/method"),
        "empty_method": (inputs, outputs, ""),
    }


def tensors():
    """Build signatures that return inputs of any shape, and outputs that JSON cannot represent."""

    def same(**dtypes):
        inputs = {name: v1.placeholder(dtype, name=name) for name, dtype in dtypes.items()}
        return inputs, {name: tf.identity(tensor) for name, tensor in inputs.items()}

    x = v1.placeholder(INT, name="x")
    words = tf.constant([["foo", "bar"]])
    return {
        "serving_default": same(default=INT),
        "floats": same(default=FLOAT),
        "doubles": same(default=tf.float64),
        "strings": same(default=STRING),
        "bytes": same(str_tensor_bytes=STRING),
        "rows": same(int_tensor=INT, str_tensor=STRING, float_tensor=FLOAT, dbl_tensor=tf.float64),
        "columns": same(int_tensor=INT, str_tensor=STRING, bin_tensor=STRING),
        "pair": same(int_tensor=INT, str_tensor=STRING),
        "five": same(
            double_scalar_tensor=tf.float64,
            float_tensor=FLOAT,
            int_tensor=INT,
            str_tensor=STRING,
            str_tensor_bytes=STRING,
        ),
        "complex": ({"x": x}, {"tensor": tf.complex(tf.cast(x, FLOAT), 2.0)}),
        "scalar": ({"x": x}, {"tensor": tf.reduce_sum(x)}),
        "other_batch": ({"x": x}, {"int_tensor": tf.identity(x), "str_tensor": words[:1]}),
        "no_rows": ({"x": x}, {"int_tensor": x[:0]}),
        "no_rows_twice": ({"x": x}, {"int_tensor": x[:0], "str_tensor": tf.zeros([0, 3, 4])}),
        "no_rows_and_one": ({"x": x}, {"int_tensor": x[:0], "str_tensor": words}),
    }


def save_half_plus_two_tf2(directory):
    """Save half_plus_two as a `tf.Module`; `x` has a default value and the shape [1]."""
    half, two, three = (tf.Variable(value) for value in (0.5, 2.0, 3.0))
    specs = {"x": tf.io.FixedLenFeature([1], FLOAT)}
    vector, examples = tf.TensorSpec([1], FLOAT, "inputs"), tf.TensorSpec([None], STRING, "inputs")

    def of_examples(output, added):
        return lambda inputs: {output: half * tf.io.parse_example(inputs, specs)["x"] + added}

    def of_vector(output, added):
        return lambda inputs: {output: half * inputs + added}

    def predict(x=tf.zeros([1])):  # noqa: B008, the default becomes part of the signature
        return {"y": half * x + two}

    functions = {
        "serving_default": (predict, tf.TensorSpec([1], FLOAT, "x")),
        "regress_x_to_y": (of_examples("outputs", two), examples),
        "regress_x_to_y2": (of_examples("outputs", three), examples),
        "regress_x2_to_y3": (of_vector("outputs", three), vector),
        "classify_x_to_y": (of_examples("scores", two), examples),
        "classify_x2_to_y3": (of_vector("scores", three), vector),
    }
    _save(directory, functions, [half, two, three])


def save_functions(base):
    """Save models with one `tf.function` per signature, as the published tests do."""
    six, any_shape = tf.Variable(6.0), tf.TensorSpec(None, FLOAT, "x")
    batch, scalar = tf.TensorSpec([None, 1], FLOAT, "x"), tf.TensorSpec([], FLOAT, "x")
    fours = tf.TensorSpec([None, 4], FLOAT, "x")
    times_six = {"serving_default": (lambda x: {"y": six * x}, any_shape)}
    _save(base / "times_six" / VERSION, times_six, [six])
    constants = {
        "serving_default": (lambda x: {"y": tf.constant(1.0)}, any_shape),
        "custom_signature_key": (lambda x: {"y": tf.constant(2.0)}, any_shape),
    }
    _save(base / "constants" / VERSION, constants)
    shapes = {
        "serving_default": (lambda x: {"y": x}, batch),
        "scalar": (lambda x: {"y": x + 1.0}, scalar),
        "sum": (lambda x: {"y": tf.reduce_sum(x, axis=-1)}, fours),
        "softmax": (lambda x: {"y": tf.nn.softmax(x, axis=-1)}, fours),
        "matrix": (lambda x: {"y": tf.matmul(x, tf.ones([4, 2]))}, fours),
    }
    _save(base / "shapes" / VERSION, shapes)


def _save(directory, functions, variables=()):
    module = tf.Module()
    module.variables_of_functions = list(variables)
    signatures = {
        name: tf.function(function, input_signature=[spec])
        for name, (function, spec) in functions.items()
    }
    tf.saved_model.save(module, str(directory), signatures=signatures)
