"""Train a Relational Memory Core or an LSTM to predict the next character of a text.

python -m train_scripts.train_text                     # a Relational Memory Core on Shakespeare
python -m train_scripts.train_text --preset lstm       # an LSTM with as many parameters
python -m train_scripts.train_text --text FILE         # on any text in UTF-8
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import TYPE_CHECKING, Any, Literal

from rrl_tf import data, training
from rrl_tf.errors import InvalidInput
from rrl_tf.training.config import MUTABLE, FitConfig, require_positive
from train_scripts import command_line

if TYPE_CHECKING:  # `--help` is shown without Keras
    import keras


@dataclasses.dataclass(frozen=True)
class Config(FitConfig):
    """Set the options of a run. An epoch is one pass through the text."""

    runs: str = "runs/text"
    text: str | None = dataclasses.field(default=None, metadata=MUTABLE)
    """File in UTF-8; by default Shakespeare's Coriolanus and most of Richard III."""

    core: Literal["rmc", "lstm"] = "rmc"
    """Recurrent layer that reads the characters."""
    embedding: int = 32
    """Size of a character's vector."""
    mem_slots: int = 4
    """Number of slots of the Relational Memory."""
    head_size: int = 32
    """Size of a head of the Relational Memory."""
    num_heads: int = 4
    """Number of attention heads of the Relational Memory."""
    units: int = 193
    """Size of the LSTM; with 193 it has as many parameters as the Relational Memory Core."""

    epochs: int = 4
    """Number of passes through the text."""
    batch_size: int = 64
    """Number of parts of the text that are read in parallel, one per row of a batch."""
    length: int = 32
    """Characters per update. The gradient covers only these; the memory has earlier ones, too."""
    learning_rate: float = 4e-3
    clip_norm: float | None = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "embedding", "mem_slots", "head_size", "num_heads", "units")
        require_positive(self, "epochs", "batch_size", "length")

    @property
    def default_name(self) -> str:
        """The preset, the name of the user's text if there is one, and the seed."""
        text = f"{pathlib.Path(self.text).stem}-" if self.text else ""
        return f"{self.preset}-{text}seed{self.seed}"


PRESETS = {
    "rmc": Config(preset="rmc"),
    "lstm": Config(preset="lstm", core="lstm", learning_rate=3e-2),
}
ABOUT = {"rmc": "a Relational Memory Core", "lstm": "an LSTM with as many parameters"}


def main(config: Config) -> training.FitRun:
    """Train a model of the characters of a text. Repeat the command to resume the run."""
    import keras

    if training.make_replicas(config, config.batch_size).count > 1:
        raise InvalidInput(
            "a text model trains on one device, because the batch size of a stateful network is "
            f"fixed; received {config.devices} devices per host"
        )
    text = data.load_text(config.text, min_characters=10 * (config.batch_size * config.length + 1))
    characters = data.Characters(text)
    parts = {
        name: data.TextBatches(codes, config.batch_size, config.length)
        for name, codes in data.split_text(characters.encode(text)).items()
    }
    keras.utils.set_random_seed(config.seed)
    run = training.FitRun(
        config,
        make_model(config, len(characters), len(parts["train"])),
        steps=config.epochs * len(parts["train"]),
        steps_per_epoch=len(parts["train"]),
        identity={"text_checksum": training.checksum(text)},
    )
    if not run.is_finished():
        reset = memory_reset(run.model)
        run.fit(parts["train"], validation_data=parts["validation"], callbacks=[reset])
        finish(run, parts)
    return run


def memory_reset(model: keras.Model) -> keras.callbacks.Callback:
    """Return a callback that resets the memory at the start of every epoch and evaluation."""
    import keras

    def reset(*_):
        model.get_layer("core").reset_state()

    return keras.callbacks.LambdaCallback(on_epoch_begin=reset, on_test_begin=reset)


def make_network(config: Config, num_characters: int, batch_size: int) -> keras.Model:
    """Return a model that maps codes `(B, T)` to logits `(B, T, num_characters)`.

    Its memory continues from call to call.
    """
    import keras

    from rrl_tf.layers import RelationalMemory

    options: dict[str, Any] = {
        "return_sequences": True,
        "stateful": True,
        "name": "core",
        "dtype": config.dtype,
    }
    if config.core == "rmc":
        core = RelationalMemory(config.mem_slots, config.head_size, config.num_heads, **options)
    else:
        core = keras.layers.LSTM(config.units, **options)
    return keras.Sequential(
        [
            keras.Input(batch_shape=(batch_size, None), dtype="int32"),
            keras.layers.Embedding(num_characters, config.embedding, dtype=config.dtype),
            core,
            keras.layers.Dense(num_characters, dtype=config.dtype),
        ]
    )


def make_model(config: Config, num_characters: int, steps_per_epoch: int) -> keras.Model:
    """Return a compiled network with new weights."""
    import keras

    model = make_network(config, num_characters, config.batch_size)
    options = config.optimizer_options(config.epochs * steps_per_epoch)
    model.compile(
        training.make_optimizer("adam", **options),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[bits_per_character],
        jit_compile=config.jit_compile,
    )
    return model


def bits_per_character(targets: Any, logits: Any) -> Any:
    """Return the cross-entropy of `(B, T)` codes and `(B, T, characters)` logits in bits."""
    from keras import ops

    logits = ops.cast(logits, "float32")
    nats = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    return nats / math.log(2)


def finish(run: training.FitRun, parts: dict[str, data.TextBatches]) -> None:
    """Test the trained model."""
    bits = {
        f"{part}/bits_per_character": run.model.evaluate(
            parts[part], callbacks=[memory_reset(run.model)], verbose=0, return_dict=True
        )["bits_per_character"]
        for part in ("validation", "test")
    }
    known, unseen = (parts[part].rows[:, 1:].ravel() for part in ("train", "test"))
    summary = {
        "epochs": run.config.epochs,
        "parameters": sum(math.prod(w.shape) for w in run.model.trainable_weights),
        **bits,
        "test/characters": unseen.size,
        "test/bits_of_frequencies": data.character_frequencies_bits(known, unseen),
    }
    run.finish(
        summary,
        f"{bits['test/bits_per_character']:.3f} bits per character on {unseen.size:,} characters "
        f"of test text ({summary['test/bits_of_frequencies']:.3f} from the frequencies of the "
        f"characters alone), {summary['parameters']:,} parameters",
    )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="rmc", about=ABOUT)
