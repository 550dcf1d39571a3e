"""Train a Relational Memory Core and an LSTM to predict the next character of a text."""

from benchmarks.reproduction import Reproduction, Training, read_log, spread

TRAININGS = {
    "rmc": Training("Relational Memory Core", "train_text", "rmc"),
    "lstm": Training("LSTM", "train_text", "lstm"),
}
BITS = "bits_per_character"


def measure(run):
    """Return the training loss of the last epoch."""
    return {f"train/{BITS}": read_log(run)[-1][f"train/{BITS}"]}


def table(results):
    """Return the losses of all models, and the entropy of the characters."""
    rows = [
        {
            "model": training.label,
            "parameters": f"{found[0]['parameters']:,}",
            "seeds": len(found),
            "epochs": found[0]["epochs"],
            "training bits per character, last epoch": bits(found, "train"),
            "validation bits": bits(found, "validation"),
            "test bits": bits(found, "test"),
        }
        for training, found in results.of_each(TRAININGS)
    ]
    floor = f"{results.of('rmc')[0]['test/bits_of_frequencies']:.3f}"
    return [*rows, {"model": "*character frequencies alone*", "test bits": floor}]


def bits(found, part):
    """Format the bits per character on one part of the text."""
    return spread([each[f"{part}/{BITS}"] for each in found], ".3f")


REPRODUCTION = Reproduction(
    page="text", trainings=TRAININGS, tables={"table": table}, measure=measure
)
