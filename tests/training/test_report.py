"""The report of a finished run is complete and self-contained."""

import html
import html.parser
import importlib.util
import re
import shlex

import numpy as np
import pytest

from rrl_tf import viz
from rrl_tf.training import Run, RunConfig, report
from rrl_tf.training.report import CURVES, write_report

pytestmark = pytest.mark.tf_only


class Tags(html.parser.HTMLParser):
    """Collects tags and checks that each is closed in order."""

    void = ("meta", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def run(tmp_path):
    return Run(RunConfig(runs=str(tmp_path), name="a & <b>"), 100)


def finished(run, rows=()):
    for step, metrics in rows:
        run.log.write(step, metrics)
    figure = viz.learning_curves({"x": ([0, 1], [[0.0, 1.0]])}, "y")
    viz.save_figure(figure, run.folder.figures / "some_picture.png")
    run.finish({"last": {"0.5": {"return": 0.25}}}, "half\nof <them>")
    return (run.folder.path / "report.html").read_text()


def test_page_contains_outcome_pictures_curves_and_settings(run, capsys):
    rows = [(step, {"eval/return": step / 2, "train/loss": 1.0}) for step in (10, 20)]
    text = finished(run, rows)
    tags = Tags(text)
    assert not tags.open or tags.open == ["html"]
    images = [attributes for tag, attributes in tags.seen if tag == "img"]
    # A constant is not drawn.
    assert [image["alt"] for image in images] == ["some picture", "eval/return"]
    assert all(image["src"].startswith("data:image/png;base64,") for image in images)
    assert "a &amp; &lt;b&gt;" in text and "half<br>of &lt;them&gt;" in text
    assert "<td>last.0.5.return</td><td>0.25</td>" in text
    assert "<td>seed</td><td>0</td>" in text
    assert capsys.readouterr().out.strip().endswith("report.html")


def test_page_loads_no_other_file(run):
    assert not re.findall(r'(?:src|href)="(?!data:)', finished(run))


def test_evaluation_metrics_are_drawn_first_up_to_the_limit(run):
    names = [f"train/{i}" for i in range(CURVES)] + ["eval/success"]
    rows = [
        {"step": step, **{name: step * (1 + i) for i, name in enumerate(names)}} for step in (1, 2)
    ]
    rows.append({"step": 3, "eval/success": float("nan")})
    text = write_report(run.folder, "", {}, {}, rows).read_text()
    shown = re.findall(r"<figcaption>([^<]*)", text)
    assert len(shown) == CURVES and shown[0] == "eval/success"


def test_constant_evaluation_metric_has_a_curve(run):
    rows = [{"step": step, "eval/success": 0.0, "train/epsilon": 1.0} for step in (1, 2)]
    text = write_report(run.folder, "", {}, {}, rows).read_text()
    assert re.findall(r"<figcaption>([^<]*)", text) == ["eval/success"]


def test_missing_first_step_is_never(run):
    text = write_report(
        run.folder, "", {"first_perfect": None}, {"max_steps": None}, []
    ).read_text()
    assert "<td>first_perfect</td><td>never</td>" in text
    assert "<td>max_steps</td><td>None</td>" in text


def test_run_without_pictures_and_curves_has_a_page(run):
    text = write_report(run.folder, "done", {}, {}, []).read_text()
    assert "No pictures" in text and "No metric has two values" in text
    assert "serving.server" not in text


def typed(text):
    """Return the commands of a page, each as a list of words."""
    shown = re.search(r"<pre>(.*?)</pre>", text, re.DOTALL)[1]
    return [shlex.split(html.unescape(line)) for line in shown.splitlines()]


def test_next_steps_are_python_modules(run, monkeypatch):
    monkeypatch.setattr("sys.orig_argv", ["/bin/ipython", "notebook"])
    run.folder.export.mkdir(exist_ok=True)
    commands = typed(finished(run))
    assert [command[:2] for command in commands] == [["python", "-m"]] * 2
    assert [command[2] for command in commands] == ["tensorboard.main", "serving.server"]
    assert all(importlib.util.find_spec(command[2]) for command in commands)
    assert f"--model_base_path={run.folder.export}" in commands[1]


def test_next_steps_resume_the_run_with_its_options(run, monkeypatch):
    words = ["-m", "train_scripts.train_doorkey", "--seed", "3", "--name", "a & <b>"]
    monkeypatch.setattr("sys.orig_argv", ["/usr/bin/python3.11", *words])
    assert typed(finished(run))[0] == ["python", *words]


def test_metric_without_finite_values_is_not_drawn(tmp_path):
    rows = [{"step": 1, "train/gradient_norm": np.nan}, {"step": 2, "eval/success": 0.5}]
    assert list(report._curves(rows)) == []
