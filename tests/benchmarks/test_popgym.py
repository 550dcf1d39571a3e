"""Training runs on POPGym and their tables."""

import gymnasium
import pytest
import tyro

from benchmarks.reproduction import Results
from benchmarks.reproductions import popgym
from rrl_tf.errors import InvalidInput
from train_scripts import train_recurrent

pytestmark = pytest.mark.tf_only
TRAININGS = popgym.trainings(popgym.Config(steps=5000))


def test_trainings_name_registered_environments_and_known_options():
    pytest.importorskip("popgym")
    assert len(TRAININGS) == 36
    default = train_recurrent.PRESETS["gymnasium"]
    for variant, training in TRAININGS.items():
        config = tyro.cli(type(default), default=default, args=list(training.options))
        assert variant == f"{config.env.split('-')[1]}-{config.network}"
        assert config.steps == 5000 and config.env.split(":")[1] in gymnasium.registry


def test_more_steps_continue_a_run():
    """All other options must be equal, because a resumed run is checked against them."""
    more = popgym.trainings(popgym.Config(steps=1_000_000))
    for variant, training in TRAININGS.items():
        changed = set(more[variant].options) ^ set(training.options)
        assert changed == {"--steps=5000", "--steps=1000000"}
    with pytest.raises(InvalidInput, match="steps"):
        popgym.Config(steps=0)


def test_mmer_is_the_best_evaluation_of_each_run(tmp_path):
    results = Results(tmp_path / "results")
    for seed, returns in enumerate(((-0.5, 0.25, 0.125), (0.5, 0.75, -0.25))):
        run = tmp_path / str(seed)
        run.mkdir()
        rows = [f"{1000 * i},{value}\n" for i, value in enumerate(returns, start=1)]
        (run / "metrics.csv").write_text("step,eval/return\n500,\n" + "".join(rows))
        last = {"step": 3000, "eval/return": returns[-1], "cpu_minutes": 2.0}
        results.keep(f"HigherLowerEasy-lstm-dense-seed{seed}", last | popgym.measure(run), [], ())
    tables = {name: table(results) for name, table in popgym.REPRODUCTION.tables.items()}
    for name, expected in {"mmer": "50.0 (25.0 to 75.0)", "last": "-6.2 (-25.0 to 12.5)"}.items():
        rows = {row["environment"]: row for row in tables[name]}
        assert rows["HigherLowerEasy"]["LSTM"] == f"{expected}, n = 2"
        assert rows["HigherLowerEasy"]["steps"] == "3,000"
        assert rows["HigherLowerHard"]["LSTM"] == "not measured"
    assert [row["runs"] for row in tables["budget"]] == [2, 0, 0]
