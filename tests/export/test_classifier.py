"""Exported classifiers answer for raw images as the model does."""

import json

import keras
import numpy as np
import pytest

from rrl_tf.data.perturb import clean
from rrl_tf.export import SavedModelSession, export_classifier
from rrl_tf.models import MLPClassifier, PatchAttentionClassifier

pytestmark = pytest.mark.tf_only


def images(batch):
    return np.random.default_rng(0).integers(0, 256, (batch, 8, 8), np.uint8)


def built(model):
    model.build((None, 8, 8, 1))
    return model


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_classes_probabilities_and_attention(tmp_path, dtype):
    model = built(PatchAttentionClassifier(patch_size=4, dtype=dtype))
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


def test_what_does_not_attend_has_no_attention_to_show(tmp_path):
    folder = export_classifier(tmp_path, built(MLPClassifier()), clean, (8, 8), version=7)
    assert folder.name == "7"
    session = SavedModelSession(folder)
    assert set(session.signatures) == {"classify", "serving_default"}
    with pytest.raises(FileExistsError, match="version 7"):
        export_classifier(tmp_path, built(MLPClassifier()), clean, (8, 8), version=7)


def test_nothing_is_written_for_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        export_classifier(tmp_path, built(MLPClassifier()), clean, (8, 8), {"scores": object()})
    assert list(tmp_path.iterdir()) == []
