"""TensorFlow Serving's published cases of Classify, Regress and MultiInference over gRPC."""

import pytest
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

pytestmark = pytest.mark.tf_only
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"
PREDICT = "tensorflow/serving/predict"
HALVES = ("half_plus_two", "half_plus_two_tf2")


def example(**features):
    """Return an Example with a list of numbers or of strings for each feature."""
    message = example_pb2.Example()
    for name, entries in features.items():
        feature = message.features.feature[name]
        if isinstance(entries[0], str):
            feature.bytes_list.value.extend(entry.encode() for entry in entries)
        else:
            feature.float_list.value.extend(entries)
    return message


def scored(**scores):
    return example(**{"class": list(scores), "score": list(scores.values())})


TWO = (scored(dos=2.0, uno=1.0), scored(cuatro=4.0, tres=3.0))


def request_of(kind, model, examples=None, signature="", context=None):
    """Return a request; `examples=None` omits the list."""
    request = kind()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    fill(request.input, examples, context)
    return request


def fill(target, examples, context=None):
    target.SetInParent()
    if examples is None:
        return
    filled = target.example_list if context is None else target.example_list_with_context
    filled.SetInParent()
    filled.examples.extend(examples)
    if context is not None:
        filled.context.CopyFrom(context)


def classes(published, examples, signature="", context=None, model="classifier"):
    kind = classification_pb2.ClassificationRequest
    response = published.stub.Classify(
        request_of(kind, model, examples, signature, context), timeout=20
    )
    assert response.model_spec.version.value == 123
    assert response.model_spec.signature_name == (signature or "serving_default")
    entries = response.result.classifications
    return [[(each.label, each.score) for each in entry.classes] for entry in entries]


def values(published, examples, signature="", context=None, model="regressor"):
    kind = regression_pb2.RegressionRequest
    response = published.stub.Regress(
        request_of(kind, model, examples, signature, context), timeout=20
    )
    assert response.model_spec.version.value == 123
    assert response.model_spec.signature_name == (signature or "serving_default")
    return [each.value for each in response.result.regressions]


def test_classes_and_scores(published):
    expected = [[("dos", 2), ("uno", 1)], [("cuatro", 4), ("tres", 3)]]
    assert classes(published, TWO) == expected


def test_a_named_signature_classifies(published):
    expected = [[("dos", 3), ("uno", 2)], [("cuatro", 5), ("tres", 4)]]
    assert classes(published, TWO, "plus_one") == expected


def test_the_context_is_copied_to_each_example(published):
    empty = [example_pb2.Example(), example_pb2.Example()]
    expected = [[("dos", 2), ("uno", 1)]] * 2
    assert classes(published, empty, context=scored(dos=2.0, uno=1.0)) == expected


def test_an_example_overrides_its_context(published):
    examples = [example_pb2.Example(), scored(tres=3.0, cuatro=4.0)]
    expected = [[("uno", 1), ("dos", 2)], [("tres", 3), ("cuatro", 4)]]
    assert classes(published, examples, context=scored(uno=1.0, dos=2.0)) == expected


def test_classes_without_scores(published):
    expected = [[("dos", 0), ("uno", 0)], [("cuatro", 0), ("tres", 0)]]
    assert classes(published, TWO, "classes_only") == expected


def test_scores_without_classes(published):
    assert classes(published, TWO, "scores_only") == [[("", 2), ("", 1)], [("", 4), ("", 3)]]


def test_a_score_of_zero_is_kept(published):
    examples = [scored(minus=-1.0, zero=0.0, one=1.0)]
    assert classes(published, examples, "scores_only") == [[("", -1), ("", 0), ("", 1)]]


@pytest.mark.parametrize("model", HALVES)
@pytest.mark.parametrize(("x", "score"), [(2.0, 3.0), (20.0, 12.0), (10.0, 7.0)])
def test_half_plus_two_classifies(published, model, x, score):
    found = classes(published, [example(x=[x])], "classify_x_to_y", model=model)
    assert found == [[("", score)]]


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("regression", "does not support classify"),
        ("deep_scores", "[2, 2, 10]"),
        ("nothing", "does not support classify"),
        ("one_row_of_classes", "[1, 2]"),
        ("one_row_of_scores", "[1, 2]"),
        ("classes_are_floats", "does not support classify"),
        ("scores_are_strings", "does not support classify"),
        ("more_scores", "(2, 3)"),
        ("none", "none"),
        ("fails", "Run totally failed"),
    ],
)
def test_signatures_that_cannot_classify(published, refusal, signature, words):
    request = request_of(classification_pb2.ClassificationRequest, "classifier", TWO, signature)
    code, details = refusal(published.stub.Classify, request)
    assert code == "INVALID_ARGUMENT" and words in details


@pytest.mark.parametrize(
    ("signature", "context", "outputs", "expected"),
    [
        ("", None, [2.0, 3.0], [2.0, 3.0]),
        ("plus_one", None, [2.0, 3.0], [3.0, 4.0]),
        ("", 3.0, [None, None], [3.0, 3.0]),
    ],
)
def test_regression(published, signature, context, outputs, expected):
    examples = [
        example_pb2.Example() if each is None else example(output=[each]) for each in outputs
    ]
    context = None if context is None else example(output=[context])
    assert values(published, examples, signature, context) == expected


@pytest.mark.parametrize("model", HALVES)
@pytest.mark.parametrize(
    ("signature", "x", "expected"),
    [("regress_x_to_y", 2.0, 3.0), ("regress_x_to_y", 80.0, 42.0), ("regress_x_to_y2", 2.0, 4.0)],
)
def test_half_plus_two_regresses(published, model, signature, x, expected):
    assert values(published, [example(x=[x])], signature, model=model) == [expected]


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("classification", "does not support regress"),
        ("matrix", "[2, 10]"),
        ("one_more", "[3]"),
        ("strings", "does not support regress"),
        ("nothing", "does not support regress"),
        ("none", "none"),
        ("fails", "Run totally failed"),
    ],
)
def test_signatures_that_cannot_regress(published, refusal, signature, words):
    examples = [example(output=[2.0]), example(output=[3.0])]
    request = request_of(regression_pb2.RegressionRequest, "regressor", examples, signature)
    code, details = refusal(published.stub.Regress, request)
    assert code == "INVALID_ARGUMENT" and words in details


@pytest.mark.parametrize(
    ("examples", "context"),
    [(None, None), ([], None), ([], example(output=[3.0]))],
    ids=["no list", "empty list", "context alone"],
)
def test_a_request_without_examples(published, refusal, examples, context):
    for call, kind, model in (
        (published.stub.Classify, classification_pb2.ClassificationRequest, "classifier"),
        (published.stub.Regress, regression_pb2.RegressionRequest, "regressor"),
    ):
        code, details = refusal(call, request_of(kind, model, examples, context=context))
        assert code == "INVALID_ARGUMENT" and "Input is empty" in details


def test_the_method_name_counts_only_if_it_is_checked(published, serve_published, refusal):
    cases = [
        ("Classify", classification_pb2.ClassificationRequest, "classifier", TWO),
        ("Regress", regression_pb2.RegressionRequest, "regressor", [example(output=[2.0])]),
    ]
    with serve_published(enable_signature_method_name_check=True) as strict:
        for name, kind, model, examples in cases:
            for signature in ("", "unknown_method", "empty_method"):
                request = request_of(kind, model, examples, signature)
                getattr(published.stub, name)(request, timeout=20)
                if not signature:
                    getattr(strict.stub, name)(request, timeout=20)
                    continue
                code, details = refusal(getattr(strict.stub, name), request)
                assert code == "INVALID_ARGUMENT" and "method_name" in details


def multi(model, *tasks, examples=None):
    """Return a request; a task is (signature, method) or (signature, method, model)."""
    request = inference_pb2.MultiInferenceRequest()
    for signature, method, *other in tasks:
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = (*other, model)[0], signature
    fill(request.input, examples)
    return request


@pytest.mark.parametrize("model", HALVES)
@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([("regress_x_to_y", REGRESS)], [3.0]),
        ([("regress_x_to_y", REGRESS), ("regress_x_to_y2", REGRESS)], [3.0, 4.0]),
        ([("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY)], [3.0, [("", 3.0)]]),
    ],
)
def test_multi_inference(published, model, tasks, expected):
    response = published.stub.MultiInference(
        multi(model, *tasks, examples=[example(x=[2.0])]), timeout=20
    )
    found = []
    for task, entry in zip(tasks, response.results, strict=True):
        spec = entry.model_spec
        assert (spec.name, spec.signature_name, spec.version.value) == (model, task[0], 123)
        if entry.WhichOneof("result") == "regression_result":
            found.append(entry.regression_result.regressions[0].value)
        else:
            (result,) = entry.classification_result.classifications
            found.append([(each.label, each.score) for each in result.classes])
    assert found == expected


@pytest.mark.parametrize("model", HALVES)
@pytest.mark.parametrize(
    ("tasks", "examples", "code", "words"),
    [
        ([("regress_x_to_y", REGRESS)], None, "INVALID_ARGUMENT", "Input is empty"),
        ([("missing", REGRESS)], 2.0, "INVALID_ARGUMENT", "not found"),
        (
            [("regress_x_to_y", REGRESS), ("regress_x_to_y", REGRESS, "other")],
            2.0,
            "INVALID_ARGUMENT",
            "same model",
        ),
        (
            [("regress_x_to_y", REGRESS), ("regress_x_to_y", REGRESS)],
            2.0,
            "INVALID_ARGUMENT",
            "Duplicate evaluation of signature: regress_x_to_y",
        ),
        ([("serving_default", PREDICT)], 2.0, "UNIMPLEMENTED", "Unsupported signature"),
        ([("regress_x_to_y", REGRESS, "nonexistent_model")], 2.0, "NOT_FOUND", "nonexistent_model"),
    ],
)
def test_refused_multi_inference(published, refusal, model, tasks, examples, code, words):
    examples = None if examples is None else [example(x=[examples])]
    request = multi(model, *tasks, examples=examples)
    received, details = refusal(published.stub.MultiInference, request)
    assert received == code and words in details
