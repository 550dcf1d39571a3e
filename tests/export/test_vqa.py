"""Exported VQA models return the outputs of the model for raw images."""

import keras
import numpy as np
import pytest

from rrl_tf.data.sort_of_clevr import QUESTION_SIZE, examples, ink, sample_sort_of_clevr
from rrl_tf.export import SavedModelSession, export_vqa
from rrl_tf.models import ConvolutionalVQA, RelationalVQA

pytestmark = pytest.mark.tf_only


@pytest.mark.parametrize("kind", [RelationalVQA, ConvolutionalVQA])
def test_export_returns_answers_probabilities_and_attention(tmp_path, kind):
    pictures = sample_sort_of_clevr(3, 1)
    inputs, _ = examples(pictures)
    model = kind.from_preset("fast")
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(model(inputs)))
    folder = export_vqa(tmp_path, model, ink, (75, 75, 3), QUESTION_SIZE)
    session = SavedModelSession(folder)
    attends = kind is RelationalVQA
    names = {"answer", "serving_default"} | ({"answer_with_attention"} if attends else set())
    assert set(session.signatures) == names
    for number in range(2):
        asked = {"image": pictures.images, "question": pictures.questions[:, number]}
        for signature in session.signatures:
            answer = session.run(signature, asked)
            np.testing.assert_allclose(answer["probabilities"], expected[:, number], atol=1e-5)
            assert (answer["answer"] == expected[:, number].argmax(-1)).all()
            assert answer["answer"].dtype == np.int32
    if attends:
        attention = session.run("answer_with_attention", asked)["attention_round_3"]
        assert attention.shape == (3, 4, 82, 82)
        np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
