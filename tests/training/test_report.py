"""The report of a finished run is complete and self-contained."""

import base64
import html
import html.parser
import importlib.util
import io
import os
import re
import shlex

import numpy as np
import pytest
from code_blocks import ROOT
from PIL import Image

import rrl_tf
from rrl_tf import viz
from rrl_tf.training import Run, RunConfig, report
from rrl_tf.training.devices import hardware
from rrl_tf.training.report import CURVES, write_report

pytestmark = pytest.mark.tf_only


class Tags(html.parser.HTMLParser):
    """Parser that collects tags and checks that they are closed in order."""

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
    assert [image["alt"] for image in images] == ["some picture", "eval/return"]
    assert "<p>Constant: train/loss 1</p>" in text
    assert "<b>eval/return</b> mean return of the evaluation episodes" in text
    assert text.count("eval/return") == 2  # the picture's name and caption
    assert all(image["src"].startswith("data:image/png;base64,") for image in images)
    assert "a &amp; &lt;b&gt;" in text and "half<br>of &lt;them&gt;" in text
    assert "<tr><th>last</th><th>return</th></tr><tr><td>0.5</td><td>0.25</td></tr>" in text
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
    shown = re.findall(r"<figcaption><b>([^<]*)", text)
    assert len(shown) == CURVES and shown[0] == "eval/success"


def test_constant_metrics_are_named_with_their_value_instead_of_a_curve(run):
    rows = [{"step": step, "eval/success": 0.0, "train/epsilon": 0.25} for step in (1, 2)]
    text = write_report(run.folder, "", {}, {}, rows).read_text()
    assert "<figcaption>" not in text
    assert "<p>Constant: eval/success 0, train/epsilon 0.25</p>" in text


def test_curves_keep_the_size_of_their_text():
    """Regression: the page shrank figures of 9 inches to half their size."""
    picture = report._curve("eval/success", np.arange(3.0), np.arange(3.0))
    [content] = re.findall(r"base64,([^\"]*)", picture)
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        assert image.width / viz.style.FIGURE_DPI < 5


def test_page_says_when_how_and_where_the_run_was_trained(run, monkeypatch):
    monkeypatch.setattr("sys.orig_argv", ["/bin/python", "/x/bin/rrl-train", "doorkey", "--seed=3"])
    run.save(40, {"agent": {"updates": 1}})
    text = html.unescape(finished(run))
    cells = dict(re.findall(r"<td>([^<]*)</td><td>([^<]*)</td>", text))
    assert cells["command"] == "rrl-train doorkey --seed=3"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d \S+", cells["finished"])
    assert re.fullmatch(r"\d+:\d\d:\d\d, from step 0 to 40", cells["wall time"])
    assert cells["versions"].startswith(f"rrl_tf {rrl_tf.__version__}, TensorFlow ")
    assert cells["hardware"] == hardware() and f"{os.cpu_count()} cores" in cells["hardware"]


def test_captions_are_those_of_the_files(run):
    figure = viz.returns_figure({"a": {"b": ([0.0, 1.0], [[0.0, 1.0]])}})
    viz.save_figure(figure, run.folder.figures / "targets.png")
    frames = np.zeros((2, 4, 4, 3), "uint8")
    viz.save_film(frames, run.folder.figures / "episode.gif", caption="a <b> c")
    text = write_report(run.folder, "", {}, {}, []).read_text()
    shown = re.findall(r"<figcaption><b>(\w+)</b> ([^<]*)<", text)
    assert shown == [("episode", "a &lt;b&gt; c"), ("targets", figure.get_label())]
    assert figure.get_label().startswith("Return that the policy reaches")


def test_indented_lines_of_the_summary_are_left_to_the_tables(run):
    text = write_report(run.folder, "first\n  detail\nsecond", {}, {}, []).read_text()
    assert "<p>first<br>second</p>" in text


def test_every_described_metric_is_in_the_guide():
    guide = (ROOT / "docs" / "how_to" / "log.md").read_text()
    guide = guide.replace("`eval/return_epsilon_0.05` replaces", "`eval/return_epsilon_0.05`")
    assert all(f"`{name}`" in guide for name in report.MEANINGS)


def test_missing_first_step_is_shown_as_never(run):
    text = write_report(
        run.folder, "", {"first_perfect": None}, {"max_steps": None}, []
    ).read_text()
    assert "<td>first_perfect</td><td>never</td>" in text
    assert "<td>max_steps</td><td>None</td>" in text


def test_run_without_pictures_and_curves_has_a_page(run):
    text = write_report(run.folder, "done", {}, {}, []).read_text()
    assert "No pictures" in text and "No metric has two different values" in text
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


def test_command_resumes_the_run_with_its_options(run, monkeypatch):
    words = ["-m", "train_scripts.train_doorkey", "--seed", "3", "--name", "a & <b>"]
    monkeypatch.setattr("sys.orig_argv", ["/usr/bin/python3.11", *words])
    [command] = re.findall(r"<td>command</td><td>([^<]*)</td>", finished(run))
    assert shlex.split(html.unescape(command)) == ["python", *words]


def test_metric_without_finite_values_is_not_drawn(tmp_path):
    rows = [{"step": 1, "train/gradient_norm": np.nan}, {"step": 2, "eval/success": 0.5}]
    assert report._metrics(rows) == {}
