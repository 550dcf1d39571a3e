"""A run is told to be finished by how far it has come and how far it should."""

import dataclasses
import json

import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.training import Run, RunConfig

pytestmark = pytest.mark.tf_only


def opened(path, steps=100, **options):
    return Run(RunConfig(runs=str(path), name="run"), steps, **options)


def test_a_run_is_finished_once_and_says_so(tmp_path, capsys):
    run = opened(tmp_path)
    assert (run.step, run.load(), run.is_finished()) == (0, None, False)
    run.log.write(100, {"train/loss": 1.0})
    run.save(100, {"loop": {"step": 100}})
    assert run.is_over() and not run.is_finished()
    run.finish({"eval/success": 0.5}, "half of them solved", [tmp_path / "a.png"])
    assert "step 100: half of them solved\nwritten: " in capsys.readouterr().out
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert found == {"step": 100, "eval/success": 0.5}
    again = opened(tmp_path)
    assert again.is_finished() and again.load() == {"loop": {"step": 100}}
    assert "is trained already, to step 100" in capsys.readouterr().out


def test_a_run_and_its_folder_show_where_they_are(tmp_path):
    run = opened(tmp_path)
    run.save(30, {"loop": {}})
    path = str(tmp_path / "run")
    assert repr(run) == f"Run({path!r}, step=30, steps=100)"
    assert repr(run.folder) == f"RunFolder({path!r}, step=30)"


def test_a_finished_run_can_be_asked_for_more_or_less(tmp_path):
    run = opened(tmp_path)
    run.save(100, {"loop": {}})
    run.finish({})
    assert not opened(tmp_path, steps=200).is_finished()
    assert opened(tmp_path, steps=50).is_finished()


def test_a_run_that_ended_before_its_first_row_is_finished(tmp_path):
    run = opened(tmp_path, steps=7)
    run.save(7, {"loop": {}})
    run.finish({})
    assert opened(tmp_path, steps=7).is_finished()


def test_the_rows_may_end_a_run_early(tmp_path):
    def solved(rows):
        return bool(rows) and rows[-1]["eval/success"] == 1

    run = opened(tmp_path, stop=solved)
    assert not run.is_over()
    run.log.write(10, {"eval/success": 1.0})
    assert run.is_over(10)
    run.save(10, {"loop": {}})
    run.finish({})
    assert opened(tmp_path, stop=solved).is_finished()


def test_rows_beyond_the_checkpoint_are_forgotten(tmp_path):
    run = opened(tmp_path)
    for step in (10, 20, 30):
        run.log.write(step, {"train/loss": 1.0})
    run.save(20, {"loop": {}})
    assert [row["step"] for row in opened(tmp_path).log.rows] == [10, 20]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("metrics.csv", b"\xff\x00", "is not a log of metrics"),
        ("evaluation.json", b"{", "evaluation.json is not JSON"),
        ("checkpoints/0000000100/state.json", b"{", "0000000100 cannot be read"),
        ("checkpoints/0000000100/state.json", b'{"loop": {"step": 7}}', "does not fit .*: step 7;"),
    ],
)
def test_a_command_that_is_refused_writes_nothing(tmp_path, file, content, message):
    def restore(step, state):
        if state["loop"]["step"] != step:
            raise InvalidInput(f"step {state['loop']['step']}")

    run = opened(tmp_path, steps=100)
    run.log.write(100, {"train/loss": 1.0})
    run.save(100, {"loop": {"step": 100}})
    run.finish({})
    (run.folder.path / file).write_bytes(content)
    before = contents(run.folder.path)
    config = RunConfig(runs=str(tmp_path), name="run", profile=True)
    steps = 100 if file == "evaluation.json" else 200
    with pytest.raises(InvalidInput, match=message):
        Run(config, steps, restore=restore)
    assert contents(run.folder.path) == before


def test_what_a_run_goes_on_with_is_noted_when_it_goes_on(tmp_path, wandb):
    def goes_on(steps, **changes):
        config = RunConfig(runs=str(tmp_path), name="run", **changes)
        return Run(config, steps, restore=lambda step, state: taken_up.append((step, state)))

    taken_up = []
    run = goes_on(100)
    assert not taken_up
    run.save(100, {"loop": {}})
    run.finish({})
    before = contents(run.folder.path)
    assert goes_on(50, profile=True).is_finished()
    wandb.refuses = "no API key"
    with pytest.raises(InvalidInput, match="no API key"):
        goes_on(200, profile=True, logger=("tensorboard", "wandb"))
    assert contents(run.folder.path) == before
    assert not goes_on(200, profile=True).is_finished()
    assert taken_up == [(100, {"loop": {}})] * 3
    assert json.loads((run.folder.path / "config.json").read_text())["profile"] is True


def test_other_data_are_another_run(tmp_path):
    opened(tmp_path, identity={"data_checksum": "aa"})
    with pytest.raises(InvalidInput, match="data_checksum is 'aa' there and 'bb' here"):
        opened(tmp_path, identity={"data_checksum": "bb"})


def test_an_identity_with_the_name_of_a_field_is_a_mistake_of_the_script(tmp_path):
    """Once, the one took the place of the other in config.json."""
    with pytest.raises(ValueError, match=r"names that no field has; received \['seed'\]"):
        opened(tmp_path, identity={"seed": "aa", "data_checksum": "aa"})
    assert not list(tmp_path.iterdir())


@dataclasses.dataclass(frozen=True)
class Judged(RunConfig):
    judges: int = 3
    """With these a run is evaluated."""


def judged(path, judges, steps=100):
    config = Judged(runs=str(path), name="run", judges=judges)
    return Run(config, steps, may_change=("steps",), evaluated_with=("judges",))


def test_a_finished_run_is_finished_again_with_what_it_is_evaluated_with(tmp_path):
    run = judged(tmp_path, 3)
    run.save(100, {"loop": {}})
    run.finish({"judges": 3})
    other = judged(tmp_path, 4)
    assert other.is_over() and not other.is_finished()
    assert other.folder.evaluation(100) == {"step": 100, "judges": 3}
    assert other.folder.evaluation(50) == {}
    del other  # killed before it was evaluated
    other = judged(tmp_path, 4)
    assert not other.is_finished()
    other.finish({"judges": 4})
    assert other.is_finished() and judged(tmp_path, 4).is_finished()
    assert json.loads((run.folder.path / "config.json").read_text())["judges"] == 4
    assert not judged(tmp_path, 3).is_finished()


def test_a_run_that_goes_on_may_be_evaluated_otherwise(tmp_path):
    run = judged(tmp_path, 3)
    run.save(100, {"loop": {}})
    run.finish({})
    assert judged(tmp_path, 4, steps=200).step == 100  # killed before it came further
    assert not judged(tmp_path, 4).is_finished()
    assert judged(tmp_path, 3).is_finished()


def test_what_differs_may_come_with_a_hint(tmp_path):
    opened(tmp_path, identity={"size": 1})
    with pytest.raises(InvalidInput, match=r"size is 1 there and 2 here.*that folder; sizes stay"):
        opened(tmp_path, identity={"size": 2}, hints={"size": "sizes stay", "seed": "no"})


def test_a_run_goes_on_that_is_older_than_an_option(tmp_path):
    """Once, every new option made all runs from before it runs of another configuration."""

    @dataclasses.dataclass(frozen=True)
    class Newer(RunConfig):
        sizes: tuple[int, ...] = (3, 4)
        power: float = 0.0

    opened(tmp_path).save(30, {"loop": {}})
    newer = Newer(runs=str(tmp_path), name="run")
    with pytest.raises(InvalidInput, match=r"power is 0\.0 there and 2\.0 here; sizes is \[3, 4\]"):
        Run(dataclasses.replace(newer, power=2.0, sizes=(3,)), 100)
    run = Run(newer, 100)
    assert run.step == 30
    assert json.loads((tmp_path / "run" / "config.json").read_text())["sizes"] == [3, 4]
    with pytest.raises(InvalidInput, match=r"sizes is .* there and None here"):
        opened(tmp_path)  # what is not an option any more was one


def test_a_run_may_be_moved_and_watched(tmp_path):
    opened(tmp_path / "here").save(10, {"loop": {}})
    (tmp_path / "here").rename(tmp_path / "there")
    config = RunConfig(runs=str(tmp_path / "there"), name="run", profile=True)
    assert Run(config, 100).step == 10
    with pytest.raises(InvalidInput, match="seed is 0 there and 1 here"):
        Run(dataclasses.replace(config, seed=1), 100)
