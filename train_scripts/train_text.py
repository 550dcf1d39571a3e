"""Trains a model of text, one character after the other: Relational Memory Core or LSTM.

python -m train_scripts.train_text                     # a Relational Memory Core on Shakespeare
python -m train_scripts.train_text --preset lstm       # an LSTM with as many parameters
python -m train_scripts.train_text --text FILE         # on any text in UTF-8
"""

import dataclasses
import math
from typing import Literal

import keras
import numpy as np
from keras import ops
from tqdm import tqdm
from tqdm.keras import TqdmCallback

from rrl_tf.data.text import (
    Characters,
    TextLanes,
    character_frequencies_bits,
    load_text,
    split_text,
)
from rrl_tf.errors import InvalidInput
from rrl_tf.layers import RelationalMemory
from rrl_tf.training import Checkpoint, LogMetrics, MetricsLog, RunFolder, atomic_file
from train_scripts import command_line


@dataclasses.dataclass(frozen=True)
class Config:
    """Every number of a run. An epoch goes once through the text."""

    preset: str = "rmc"
    """Where the numbers below come from."""
    seed: int = 0
    """Of the weights and of the sample."""
    name: str = ""
    """Folder under `runs`; by default the preset and the seed."""
    runs: str = "runs/text"
    """Where runs are kept."""
    text: str | None = None
    """File in UTF-8; by default Shakespeare's Coriolanus and most of Richard III."""

    core: Literal["rmc", "lstm"] = "rmc"
    """What reads the characters."""
    embedding: int = 32
    """Size of a character's vector."""
    mem_slots: int = 4
    """Rows of the Relational Memory."""
    head_size: int = 32
    num_heads: int = 4
    units: int = 193
    """Size of the LSTM; 193 makes it as large as the Relational Memory Core above."""

    epochs: int = 4
    lanes: int = 64
    """Places at which the text is read side by side: the batch."""
    length: int = 32
    """Characters from one update to the next; the gradient goes back so far, the memory further."""
    learning_rate: float = 4e-3
    """Adam's; it falls to zero along half a cosine."""
    clip_norm: float = 1.0
    """Global norm at which the gradient is clipped."""

    prompt: str = ""
    """What the sample goes on from; by default the text's first character."""
    sample_length: int = 500
    """Characters of the sample."""
    temperature: float = 0.8
    """Logits are divided by it before a character is drawn."""


PRESETS = {
    "rmc": Config(),
    "lstm": dataclasses.replace(Config(), preset="lstm", core="lstm", learning_rate=3e-2),
}


def main(config):
    """Trains a model of the characters of a text; the same command again continues."""
    check(config)
    text = load_text(config.text, min_characters=10 * (config.lanes * config.length + 1))
    characters = Characters(text)
    prompt = config.prompt or text[0]
    characters.encode(prompt)
    parts = {
        name: TextLanes(codes, config.lanes, config.length)
        for name, codes in split_text(characters.encode(text)).items()
    }
    keras.utils.set_random_seed(config.seed)
    settings = dataclasses.asdict(config)
    folder = RunFolder(
        command_line.run_path(config), settings, may_change=("text", "prompt", "sample_length")
    )
    model = make_model(config, len(characters), len(parts["train"]))
    checkpoint = Checkpoint(folder, model)
    log = MetricsLog(folder.path, until_step=checkpoint.step)
    log.settings(settings)
    model.fit(
        parts["train"],
        validation_data=parts["validation"],
        initial_epoch=checkpoint.epoch,
        epochs=config.epochs,
        callbacks=[
            FromTheStart(),
            LogMetrics(log),
            TqdmCallback(verbose=0, tqdm_class=tqdm, mininterval=0.5),
            checkpoint,
        ],
        shuffle=False,
        verbose=0,
    )
    finish(config, folder, model, parts, sample(config, model, characters, prompt))
    return folder, model


class FromTheStart(keras.callbacks.Callback):
    """Begins every epoch, and every evaluation, at the beginning of the lanes: memories go back."""

    def on_epoch_begin(self, epoch, logs=None):
        core_of(self.model).reset_state()

    def on_test_begin(self, logs=None):
        core_of(self.model).reset_state()


def core_of(model):
    """The recurrent layer."""
    return model.get_layer("core")


def make_network(config, num_characters, lanes):
    """Codes `(lanes, T)` → logits `(lanes, T, num_characters)`; it goes on from call to call."""
    options = {"return_sequences": True, "stateful": True, "name": "core"}
    if config.core == "rmc":
        core = RelationalMemory(config.mem_slots, config.head_size, config.num_heads, **options)
    else:
        core = keras.layers.LSTM(config.units, **options)
    return keras.Sequential(
        [
            keras.Input(batch_shape=(lanes, None), dtype="int32"),
            keras.layers.Embedding(num_characters, config.embedding),
            core,
            keras.layers.Dense(num_characters),
        ]
    )


def make_model(config, num_characters, steps_per_epoch):
    """A compiled network with new weights."""
    model = make_network(config, num_characters, config.lanes)
    model.compile(
        keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(
                config.learning_rate, config.epochs * steps_per_epoch
            ),
            global_clipnorm=config.clip_norm,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[bits_per_character],
        jit_compile=False,  # on a CPU XLA makes the loop slower
    )
    return model


def bits_per_character(targets, logits):
    """Cross-entropy of `(B, T)` codes under `(B, T, characters)` logits, in bits."""
    nats = ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
    return nats / math.log(2)


def finish(config, folder, model, parts, written):
    """Test of a run that has just been trained, and what it wrote."""
    bits = {
        f"{part}/bits_per_character": model.evaluate(
            parts[part], callbacks=[FromTheStart()], verbose=0, return_dict=True
        )["bits_per_character"]
        for part in ("validation", "test")
    }
    known, unseen = (parts[part].rows[:, 1:].ravel() for part in ("train", "test"))
    summary = {
        "step": int(model.optimizer.iterations),
        "epochs": config.epochs,
        "parameters": int(sum(np.prod(w.shape) for w in model.trainable_weights)),
        **bits,
        "test/characters": unseen.size,
        "test/bits_of_frequencies": character_frequencies_bits(known, unseen),
    }
    with atomic_file(folder.path / "sample.txt") as draft:
        draft.write_text(written + "\n")
    folder.finish(summary)
    print(
        f"{bits['test/bits_per_character']:.3f} bits per character on {unseen.size:,} characters "
        f"of test text ({summary['test/bits_of_frequencies']:.3f} from the frequencies of the "
        f"characters alone), {summary['parameters']:,} parameters\n{'-' * 40}\n{written}\n"
        f"{'-' * 40}\nwritten: {folder.path}/evaluation.json, sample.txt"
    )


def sample(config, model, characters, prompt):
    """The prompt, and characters drawn one by one as the model expects them."""
    network = make_network(config, len(characters), lanes=1)
    for mine, trained in zip(network.trainable_weights, model.trainable_weights):
        mine.assign(trained)
    rng = np.random.default_rng(config.seed)
    codes = characters.encode(prompt).tolist()
    read = codes
    for _ in range(config.sample_length):
        logits = ops.convert_to_numpy(network(np.array([read], "int32")))[0, -1]
        scaled = logits.astype("float64") / config.temperature
        probabilities = np.exp(scaled - scaled.max())
        read = [int(rng.choice(len(characters), p=probabilities / probabilities.sum()))]
        codes = codes + read
    return characters.decode(codes)


def check(config):
    """Raises a `ValueError` for a number that no run can have."""
    for name in ("epochs", "lanes", "length", "sample_length"):
        if getattr(config, name) < 1:
            raise InvalidInput(f"{name} must be at least 1; received {getattr(config, name)}")
    for name in ("temperature", "learning_rate"):
        if getattr(config, name) <= 0:
            raise InvalidInput(f"{name} must be greater than 0; received {getattr(config, name)}")


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="rmc")
