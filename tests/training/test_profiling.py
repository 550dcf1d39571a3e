"""A recorded profile holds steps that took time, and what they did by the names the docs use."""

import functools
import importlib.util
import json

import keras
import numpy as np
import pytest
import shared_runs
import tensorflow as tf

from rrl_tf.agents import DoubleDQNConfig, train_double_dqn
from rrl_tf.envs import doorkey_task
from rrl_tf.errors import InvalidInput
from rrl_tf.training import FitRun, Profile, RunConfig, profiled, read_profile
from rrl_tf.training.profile_summary import SCOPES
from rrl_tf.training.train_function import train_step

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

IN_A_LOOP = ("double_dqn",)
PARTS = ("act", "environment", "replay", "update")
UPDATE = ("target", "forward", "backward", "optimizer")
SLOW = [pytest.param(t, marks=pytest.mark.slow) for t in shared_runs.NAMES if t not in IN_A_LOOP]
with_and_without_xla = pytest.mark.parametrize("jit_compile", [False, True], ids=["plain", "xla"])


def check(folder, task, jit_compile):
    summary = read_profile(folder)
    assert 8 < len(summary.step_seconds) <= 20
    assert all(seconds > 0 for seconds in summary.step_seconds)
    assert tuple(summary.parts) == (PARTS if task in IN_A_LOOP else ())
    assert tuple(summary.scopes) == (UPDATE if task in IN_A_LOOP else UPDATE[1:])
    assert all(0 < share < 1 for share in (*summary.parts.values(), *summary.scopes.values()))
    assert sum(summary.parts.values()) < 1
    assert sum(summary.scopes.values()) == pytest.approx(1)
    if importlib.util.find_spec("xprof"):
        assert_tensorboard_shows(folder, task, jit_compile)


def assert_tensorboard_shows(folder, task, jit_compile):
    """What the Profile page is made of has the steps, and the names."""
    from xprof.convert.raw_to_tool_data import xspace_to_tool_data

    files = [str(file) for file in folder.rglob("*.xplane.pb")]
    pages = {}
    for page in ("input_pipeline_analyzer", "trace_viewer", "framework_op_stats"):
        content, _ = xspace_to_tool_data(files, page, {})
        pages[page] = json.loads(content)
    tables = pages["input_pipeline_analyzer"]
    times = [
        row["c"][position]["v"]
        for table in tables
        for position, column in enumerate(table["cols"])
        if column["id"] == "stepTimeMs"
        for row in table["rows"]
    ]
    assert times and all(time > 0 for time in times)
    shown = {event.get("name", "") for event in pages["trace_viewer"]["traceEvents"]}
    assert any(name.startswith("train ") for name in shown)  # and the step's number
    assert {*(PARTS if task in IN_A_LOOP else ())} <= shown
    if not jit_compile:
        operations = {
            cell["v"] for row in pages["framework_op_stats"][0]["rows"] for cell in row["c"]
        }
        found = {part for name in operations for part in str(name).split("/")}
        assert {"forward", "gradient_tape", "optimizer"} <= found


@with_and_without_xla
@pytest.mark.parametrize("task", [*IN_A_LOOP, *SLOW])
def test_every_script_records_steps_and_names(tmp_path, task, jit_compile, capsys):
    shared_runs.train(tmp_path, task, 1, "run", profile=True, jit_compile=jit_compile)
    check(tmp_path, task, jit_compile)
    assert f"tensorboard --logdir {tmp_path / 'run'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "xla"]
)
def test_the_loop_in_the_graph_has_all_names_in_one_call(tmp_path, jit_compile):
    sizes = {"steps": 96, "num_envs": 4, "batch_size": 8, "replay_capacity": 200}
    rest = {"learning_starts": 15, "evaluate_every": 96, "evaluation_episodes": 2, "log_every": 24}
    config = DoubleDQNConfig(
        **sizes,
        **rest,
        checkpoint_every=96,
        loop="graph",
        jit_compile=jit_compile,
        profile=True,
        runs=str(tmp_path),
    )
    task = doorkey_task((5,), max_steps=20)
    network = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(task.num_actions)])
    train_double_dqn(task, network, config)
    summary = read_profile(tmp_path)
    assert len(summary.step_seconds) == 1 and summary.step_seconds[0] > 0
    assert not summary.parts
    assert tuple(summary.scopes) == SCOPES


@with_and_without_xla
def test_any_fit_run_records_steps_and_names(tmp_path, jit_compile):
    model = compiled(jit_compile=jit_compile)
    config = RunConfig(runs=str(tmp_path), name="run", profile=True)
    run = FitRun(config, model, steps=30, steps_per_epoch=15)
    data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 2)))).repeat()
    run.fit(data)
    check(tmp_path, "fit", jit_compile)


def test_programs_whose_parts_have_the_same_names_are_told_apart(tmp_path):
    def work(scope):
        @tf.function(jit_compile=True)
        def multiply(x):
            with tf.name_scope(scope):
                return x @ x

        return multiply

    programs = [work("forward"), work("target")]
    for number in range(2):
        folder, x = tmp_path / str(number), tf.random.normal((200, 200))
        for program in programs:
            program(x)
        made = (programs[number](x).numpy() for _ in range(3))
        list(profiled(made, folder, lambda number: True))
        assert read_profile(folder).scopes == {["forward", "target"][number]: 1.0}


def test_without_its_page_the_reader_is_told_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    list(profiled(range(2), tmp_path, lambda number: True))
    assert "pip install '.[profile]'" in capsys.readouterr().out
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    list(profiled(range(2), tmp_path, lambda number: True))
    assert "pip" not in capsys.readouterr().out


@pytest.mark.parametrize("count", [3, 100])  # ends within the items, or with them
def test_a_window_of_items_is_recorded(tmp_path, count):
    def work():
        for i in range(6):
            yield tf.reduce_sum(tf.ones((i + 1, 8))).numpy()

    items = list(profiled(work(), tmp_path, lambda number: number == 2, count=count))
    assert items == [8.0 * (i + 1) for i in range(6)]
    recorded = 3 if count == 3 else 5  # the last one finds out that there are no more
    assert len(read_profile(tmp_path).step_seconds) == recorded


def test_whoever_stops_within_the_window_has_what_came_before(tmp_path):
    for item in profiled(range(10), tmp_path, lambda number: number == 2):
        if item == 4:
            break
    assert len(read_profile(tmp_path).step_seconds) == 3


def test_without_a_first_step_nothing_is_recorded(tmp_path):
    assert list(profiled(range(3), tmp_path)) == [0, 1, 2]
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="recorded with --profile; received"):
        read_profile(tmp_path)


@pytest.mark.parametrize("count", [2, 100])
def test_the_callback_records_steps_of_any_fit(tmp_path, count):
    model = compiled()
    profile = Profile(tmp_path, first=3, count=count)
    model.fit(np.ones((12, 4)), np.ones((12, 2)), batch_size=2, verbose=0, callbacks=[profile])
    assert len(read_profile(tmp_path).step_seconds) == min(count, 3)


def compiled(jit_compile=False, **options):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(2, **options)]
    )
    optimizer = keras.optimizers.Adam(1e-2, global_clipnorm=0.1)
    if options:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer, "mse", metrics=["mae"], weighted_metrics=["mse"], jit_compile=jit_compile
    )
    return model


@pytest.mark.parametrize("options", [{}, {"dtype": "mixed_float16"}], ids=["full", "half"])
def test_the_named_step_is_that_of_keras(options):
    rng = np.random.default_rng(0)
    data = rng.normal(size=(24, 4)), rng.normal(size=(24, 2)), rng.uniform(size=24)
    logs = []
    for named in (False, True):
        model = compiled(**options)
        if named:
            model.train_step = functools.partial(train_step, model)
        history = model.fit(data[0], data[1], 8, 2, sample_weight=data[2], verbose=0)
        logs.append((history.history, model.get_weights()))
    (expected, weights), (history, own) = logs
    assert history == expected
    for mine, theirs in zip(own, weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
