"""Read the metrics of a run."""

import csv


def metrics(run):
    """Return the rows of metrics.csv in a run folder without the `time/` columns."""
    with (run / "metrics.csv").open(newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.startswith("time/")}
            for row in csv.DictReader(file)
        ]
