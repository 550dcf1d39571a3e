"""Runs resume, end and finish by their step, and a rejected command writes nothing."""

import dataclasses
import json

import pytest

from rrl_tf.errors import InvalidInput
from rrl_tf.training import Run
from rrl_tf.training.config import EVALUATION, MUTABLE, RunConfig

pytestmark = pytest.mark.tf_only


def opened(path, steps=100, **options):
    return Run(RunConfig(runs=str(path), name="run"), steps, **options)


def test_finished_run_stays_finished_and_prints_a_line(tmp_path, capsys):
    run = opened(tmp_path)
    assert (run.step, run.load(), run.is_finished()) == (0, None, False)
    run.log.write(100, {"train/loss": 1.0})
    run.save(100, {"loop": {"step": 100}})
    assert run.is_over() and not run.is_finished()
    run.finish({"eval/success": 0.5}, "greedy: 1/2 solved", [tmp_path / "a.png"])
    assert "step 100: greedy: 1/2 solved\nwritten: " in capsys.readouterr().out
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert found == {"step": 100, "eval/success": 0.5}
    again = opened(tmp_path)
    assert again.is_finished() and again.load() == {"loop": {"step": 100}}
    assert "is already trained to step 100" in capsys.readouterr().out


def test_finished_run_continues_with_more_steps_only(tmp_path):
    run = opened(tmp_path)
    run.save(100, {"loop": {}})
    run.finish({})
    assert not opened(tmp_path, steps=200).is_finished()
    assert opened(tmp_path, steps=50).is_finished()


def test_stop_function_ends_a_run_early(tmp_path):
    def solved(rows):
        return bool(rows) and rows[-1]["eval/success"] == 1

    run = opened(tmp_path, stop=solved)
    assert not run.is_over()
    run.log.write(10, {"eval/success": 1.0})
    assert run.is_over(10)
    run.save(10, {"loop": {}})
    run.finish({})
    assert opened(tmp_path, stop=solved).is_finished()


def test_rows_after_the_checkpoint_are_dropped(tmp_path):
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
        ("metrics.csv", b"\xff\x00", "must be a CSV file of metrics"),
        ("evaluation.json", b"{", "evaluation.json is not JSON"),
        ("checkpoints/0000000100/state.json", b"{", "0000000100 cannot be read"),
        ("checkpoints/0000000100/state.json", b'{"loop": {"step": 7}}', "does not fit .*: step 7;"),
    ],
)
def test_rejected_command_writes_nothing(tmp_path, file, content, message):
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


def test_config_is_updated_when_the_run_resumes(tmp_path):
    def resumed(steps, **changes):
        config = RunConfig(runs=str(tmp_path), name="run", **changes)
        return Run(config, steps, restore=lambda step, state: restored.append((step, state)))

    restored = []
    run = resumed(100)
    assert not restored
    run.save(100, {"loop": {}})
    run.finish({})
    before = contents(run.folder.path)
    assert resumed(50, profile=True).is_finished()
    assert contents(run.folder.path) == before
    assert not resumed(200, profile=True).is_finished()
    assert restored == [(100, {"loop": {}})] * 2
    assert json.loads((run.folder.path / "config.json").read_text())["profile"] is True


def test_other_identity_is_rejected(tmp_path):
    opened(tmp_path, identity={"data_checksum": "aa"})
    with pytest.raises(InvalidInput, match="data_checksum was 'aa' and is now 'bb'"):
        opened(tmp_path, identity={"data_checksum": "bb"})


@dataclasses.dataclass(frozen=True)
class JudgedConfig(RunConfig):
    judges: int = dataclasses.field(default=3, metadata=EVALUATION)
    steps: int = dataclasses.field(default=100, metadata=MUTABLE)


def judged(path, judges, steps=100):
    return Run(JudgedConfig(runs=str(path), name="run", judges=judges, steps=steps), steps)


def test_other_evaluation_field_makes_a_finished_run_unfinished(tmp_path):
    run = judged(tmp_path, 3)
    run.save(100, {"loop": {}})
    run.finish({"judges": 3})
    other = judged(tmp_path, 4)
    assert other.is_over() and not other.is_finished()
    assert other.folder.evaluation(100) == {"step": 100, "judges": 3}
    assert other.folder.evaluation(50) == {}
    del other  # like a kill before the evaluation
    other = judged(tmp_path, 4)
    assert not other.is_finished()
    other.finish({"judges": 4})
    assert other.is_finished() and judged(tmp_path, 4).is_finished()
    assert json.loads((run.folder.path / "config.json").read_text())["judges"] == 4
    assert not judged(tmp_path, 3).is_finished()


def test_evaluation_fields_may_change_on_resume(tmp_path):
    run = judged(tmp_path, 3)
    run.save(100, {"loop": {}})
    run.finish({})
    assert judged(tmp_path, 4, steps=200).step == 100  # like a kill before more steps
    assert not judged(tmp_path, 4).is_finished()
    assert judged(tmp_path, 3).is_finished()


def test_run_of_an_older_version_is_rejected(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Newer(RunConfig):
        power: float = 0.0

    opened(tmp_path)
    with pytest.raises(
        InvalidInput, match=r"another configuration: power was None and is now 0\.0"
    ):
        Run(Newer(runs=str(tmp_path), name="run"), 100)


def test_moved_run_resumes(tmp_path):
    opened(tmp_path / "here").save(10, {"loop": {}})
    (tmp_path / "here").rename(tmp_path / "there")
    config = RunConfig(runs=str(tmp_path / "there"), name="run", profile=True)
    assert Run(config, 100).step == 10
    with pytest.raises(InvalidInput, match="seed was 0 and is now 1"):
        Run(dataclasses.replace(config, seed=1), 100)
