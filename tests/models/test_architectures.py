"""Named architectures and pretrained models."""

import pytest

from rrl_tf import models
from rrl_tf.errors import InvalidInput
from rrl_tf.models.base import architecture_config
from rrl_tf.pretrained import pretrained_models

MODELS = [getattr(models, name) for name in models.__all__ if name[0].isupper()]
UNNAMED = (models.BehaviorCloning, models.MultiInputQNetwork)
NAMED = [kind for kind in MODELS if kind not in UNNAMED]
ARGUMENTS = {models.DecisionTransformer: {"state_size": 3, "action_size": 2}}

each = pytest.mark.parametrize("kind", NAMED, ids=lambda kind: kind.__name__)


@each
def test_every_preset_has_one_sentence_and_builds_its_class(kind):
    assert kind.presets
    for name, description in kind.presets.items():
        assert description.endswith(".") and ". " not in description, name
        assert len(description) > 30
        arguments = {} if name in pretrained_models() else ARGUMENTS.get(kind, {})
        assert type(kind.from_preset(name, **arguments)) is kind


@each
def test_unknown_name_lists_the_known_names(kind):
    with pytest.raises(InvalidInput, match="received 'no such'") as error:
        kind.from_preset("no such")
    for name in kind.presets:
        assert repr(name) in str(error.value)


def test_subclass_of_a_user_keeps_the_presets_and_its_class():
    class Mine(models.MLPClassifier):
        pass

    assert Mine.presets == models.MLPClassifier.presets
    assert type(Mine.from_preset("patch-mnist")) is Mine


def test_overrides_replace_entries_of_a_dict_and_do_not_change_the_table():
    table = {"one": {"config": {"block": {"a": 1, "b": [2]}, "c": None}}}
    config = architecture_config(table, "one", {"block": {"a": 3}, "c": {"d": 4}, "e": 5})
    assert config == {"block": {"a": 3, "b": [2]}, "c": {"d": 4}, "e": 5}
    config["block"]["b"].append(6)
    assert table["one"]["config"] == {"block": {"a": 1, "b": [2]}, "c": None}
