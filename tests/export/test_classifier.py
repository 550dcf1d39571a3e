"""Exported classifiers return the model's outputs for raw images."""

import json

import keras
import numpy as np
import pytest

from rrl_tf.data.perturb import clean
from rrl_tf.errors import InvalidInput
from rrl_tf.export import SavedModelSession, export_classifier, load_policy
from rrl_tf.models import MemorySequenceClassifier, MLPClassifier, PatchAttentionClassifier

pytestmark = pytest.mark.tf_only


def images(batch):
    return np.random.default_rng(0).integers(0, 256, (batch, 8, 8), np.uint8)


def built(model):
    model.build((None, 8, 8, 1))
    return model


def test_export_returns_classes_probabilities_and_attention(tmp_path):
    model = built(PatchAttentionClassifier(patch_size=4, dtype="mixed_bfloat16"))
    folder = export_classifier(tmp_path, model, clean, (8, 8), {"class_names": ["zero"]})
    session = SavedModelSession(folder)
    assert set(session.signatures) == {"classify", "classify_with_attention", "serving_default"}
    for batch in (1, 5):
        raw = images(batch)
        logits, scores = model(clean(raw), return_attention_scores=True)
        expected = np.asarray(keras.ops.softmax(logits))
        for signature in session.signatures:
            answer = session.run(signature, {"image": raw})
            np.testing.assert_allclose(answer["probabilities"], expected, atol=2e-3)
            np.testing.assert_array_equal(answer["class"], answer["probabilities"].argmax(-1))
            assert answer["class"].dtype == np.int32
        attention = session.run("classify_with_attention", {"image": raw})["attention_round_1"]
        np.testing.assert_allclose(attention, np.asarray(scores["round_1"], "float32"), atol=2e-2)
    document = json.loads((folder / "assets.extra" / "policy.json").read_text())
    assert document["class_names"] == ["zero"]
    assert document["signatures"]["classify"]["inputs"] == {
        "image": {"dtype": "uint8", "shape": [None, 8, 8]}
    }


def test_a_loaded_classifier_takes_one_raw_image_or_a_batch(tmp_path):
    model = built(PatchAttentionClassifier(patch_size=4))
    served = load_policy(export_classifier(tmp_path, model, clean, (8, 8)))
    raw = images(5)
    expected = np.asarray(model(clean(raw))).argmax(-1)
    np.testing.assert_array_equal(served.classify(raw), expected)
    label, attention = served.classify(raw[0], return_attention_scores=True)
    assert label == expected[0] and isinstance(label, int)
    assert attention["round_1"].shape == (1, 4, 4)
    with pytest.raises(
        InvalidInput, match=r"`image` must have shape .*8, 8\].*received shape \(1, 7, 7\)"
    ):
        served.classify(raw[0, :7, :7])
    with pytest.raises(InvalidInput, match=r"received the signatures \['classify'"):
        served.act(raw)
    served.close()


def test_a_sequence_is_classified(tmp_path):
    model = MemorySequenceClassifier.from_preset("fast", num_classes=3)
    model.build((None, 2, 6))
    served = load_policy(
        export_classifier(
            tmp_path, model, lambda x: x, (2, 6), input_name="sequence", input_dtype="float32"
        )
    )
    raw = np.random.default_rng(0).normal(size=(3, 2, 6)).astype("float32")
    label, attention = served.classify(raw, return_attention_scores=True)
    logits, scores = model(raw, return_attention_scores=True)
    np.testing.assert_array_equal(label, np.asarray(logits).argmax(-1))
    np.testing.assert_allclose(attention["block_1"], np.asarray(scores["block_1"]), atol=1e-6)
    served.close()


def test_a_model_without_attention_has_no_attention_signature(tmp_path):
    folder = export_classifier(tmp_path, built(MLPClassifier()), clean, (8, 8), version=7)
    assert folder.name == "7"
    assert set(SavedModelSession(folder).signatures) == {"classify", "serving_default"}
