"""Metrics as a CSV file and as TensorBoard events, under the same names."""

import csv
import math

import tensorflow as tf

from rrl_tf.training.run_folder import atomic_file


class MetricsLog:
    """Writes rows of metrics to `metrics.csv` and to TensorBoard.

    Names are grouped as `rollout/`, `train/`, `eval/` and `time/`. A metric that a row lacks
    stays an empty cell. The CSV file is replaced whole at every row, so it is never half-written.

    Args:
        folder: the run's folder.
        until_step: int or None; rows of an earlier attempt beyond this step are dropped, since a
            resumed run writes them again.

    Example:
        >>> log = MetricsLog("runs/doorkey/first")
        >>> log.write(1000, {"train/loss": 0.5, "eval/success": 1.0})
    """

    def __init__(self, folder, until_step=None):
        self._file = folder / "metrics.csv"
        self._writer = tf.summary.create_file_writer(str(folder))
        self.rows = []
        if self._file.exists() and until_step is not None:
            with self._file.open(newline="") as file:
                self.rows = [
                    {name: float(cell) for name, cell in row.items() if cell != ""}
                    for row in csv.DictReader(file)
                ]
            self.rows = [row for row in self.rows if row["step"] <= until_step]

    def write(self, step, metrics):
        """Adds one row.

        Args:
            step: int, environment steps or updates.
            metrics: dict name → number.
        """
        self.rows.append({"step": step, **metrics})
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with atomic_file(self._file) as draft, draft.open("w", newline="") as file:
            table = csv.DictWriter(file, names, lineterminator="\n")
            table.writeheader()
            table.writerows({k: _short(v) for k, v in row.items()} for row in self.rows)
        with self._writer.as_default(step=step):
            for name, value in metrics.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def image(self, step, name, image):
        """Shows a picture `(height, width, 3)` uint8 in TensorBoard."""
        with self._writer.as_default(step=step):
            tf.summary.image(name, image[None])
        self._writer.flush()

    def settings(self, config):
        """Shows a run's configuration in TensorBoard, as a table under Text."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in config.items())
        with self._writer.as_default(step=0):
            tf.summary.text("config", f"| setting | value |\n|---|---|\n{rows}")


def _short(value):
    """Six significant digits; whole numbers as they are."""
    value = float(value)
    if math.isfinite(value) and value == int(value):
        return int(value)
    return f"{value:.6g}"
