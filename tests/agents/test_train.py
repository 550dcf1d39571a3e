"""Runs of the double DQN that fail keep the last good checkpoint."""

import functools
import json
import operator

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from rrl_tf.agents import (
    Curriculum,
    DoubleDQNConfig,
    PythonEnvs,
    RolloutStatistics,
    make_loop,
    train_double_dqn,
)
from rrl_tf.agents import train as agents_train
from rrl_tf.envs import doorkey_task, gymnasium_task
from rrl_tf.errors import InvalidInput
from rrl_tf.export import SavedModelSession
from rrl_tf.models import dense_q_network

pytestmark = [pytest.mark.tf_only, pytest.mark.usefixtures("few_pictures")]

TOY = {
    "steps": 200,
    "num_envs": 1,
    "batch_size": 4,
    "learning_starts": 10,
    "updates_per_step": 1.0,
    "log_every": 4,
    "evaluate_every": 1000,
    "evaluation_episodes": 2,
    "checkpoint_every": 4,
    "jit_compile": False,
    "name": "toy",
}


@keras.saving.register_keras_serializable("tests")
def without_gradient(inputs):
    """Return the inputs; the gradient is 0 times infinity, which is nan."""
    return inputs + keras.ops.sqrt(0 * inputs)


def train(path, network=None, **changes):
    keras.utils.set_random_seed(0)
    task = gymnasium_task("CartPole-v1", max_steps=12)
    config = DoubleDQNConfig(**{**TOY, **changes}, runs=str(path))
    return train_double_dqn(task, network or dense_q_network(task.num_actions), config)


def checkpoints(path):
    return sorted(int(folder.name) for folder in (path / "toy" / "checkpoints").iterdir())


def assert_last_checkpoint_is_whole(path, before):
    (saved,) = checkpoints(path)
    assert 0 < saved < before
    folder = path / "toy"
    assert not (folder / "export").exists() and not (folder / "evaluation.json").exists()
    with np.load(folder / "checkpoints" / f"{saved:010d}" / "arrays.npz") as arrays:
        weights = [arrays[name] for name in arrays.files if name.startswith("agent/")]
        assert weights and all(np.isfinite(array).all() for array in weights)


def test_loss_of_nan_ends_the_run_and_keeps_the_last_checkpoint(tmp_path):
    with pytest.raises(InvalidInput, match=r"diverged at step 16 .*train/loss must.*learning_rate"):
        train(tmp_path, learning_rate=1e30)
    assert_last_checkpoint_is_whole(tmp_path, before=16)


@pytest.mark.parametrize(
    ("place", "message"), [(0, "replay observation_t"), (1, "replay reward_t")]
)
def test_checkpoint_that_could_not_be_restored_is_not_saved(tmp_path, monkeypatch, place, message):
    """The values of an environment in the graph are not checked at each step."""
    step, calls = PythonEnvs._step, []

    def with_nan(env, action):
        calls.append(action)
        results = list(step(env, action))
        if len(calls) > 5:
            results[place] = results[place] + np.float32("nan")
        return tuple(results)

    monkeypatch.setattr(PythonEnvs, "_step", with_nan)
    with pytest.raises(InvalidInput, match=f"diverged at step 8 .*: {message} must be finite"):
        train(tmp_path, learning_starts=100)
    assert_last_checkpoint_is_whole(tmp_path, before=8)


def test_weights_of_nan_are_never_saved(tmp_path):
    network = keras.Sequential([keras.layers.Dense(2), keras.layers.Activation(without_gradient)])
    with pytest.raises(InvalidInput, match=r"diverged at step 12 .*: agent online/000 must"):
        train(tmp_path, network, learning_starts=11, checkpoint_every=1, n_step=1)
    assert_last_checkpoint_is_whole(tmp_path, before=12)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run, its loop and the text of its `state.json`."""
    path = tmp_path_factory.mktemp("trained")
    run, agent = train(path, steps=40, n_step=3)
    loop = make_loop(gymnasium_task("CartPole-v1", max_steps=12), agent.network, run.config)
    return run, loop, state_file(run).read_text()


def state_file(run):
    return run.folder.model_file.parent / "state.json"


def places(value, path=()):
    """Yield the path of every value inside a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, key))


@given(st.data())
@settings(max_examples=60)
def test_damaged_state_is_one_clear_error_or_resumes(trained, data):
    run, loop, text = trained
    changed = json.loads(text)
    *way, last = data.draw(st.sampled_from([path for path in places(changed) if path]))
    place = functools.reduce(operator.getitem, way, changed)
    if data.draw(st.booleans()):
        del place[last]
    else:
        place[last] = data.draw(st.sampled_from([None, True, -3, 3, "", "x", [], {}]))
    state_file(run).write_text(json.dumps(changed))
    curriculum, statistics = Curriculum(1), RolloutStatistics()
    try:
        state = run.load()
        with run.folder.restoring():
            loop.set_state(state)
            curriculum.set_state(state["curriculum"])
            statistics.set_state(state["statistics"])
    except InvalidInput as error:
        assert str(run.folder.path) in str(error)
        return
    for record, _ in zip(loop.run(loop.step + 30), range(30)):
        statistics.add(record)
    statistics.averages()
    loop.get_state()


def test_missing_part_of_the_state_is_named(tmp_path):
    run, _ = train(tmp_path, steps=40)
    text = json.loads(state_file(run).read_text())
    del text["curriculum"]
    state_file(run).write_text(json.dumps(text))
    with pytest.raises(InvalidInput, match=r"0000000040 cannot be read \(KeyError: 'curriculum'\)"):
        train(tmp_path, steps=80)


def test_run_that_the_graph_cannot_train_is_rejected_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidInput, match=r"make_graph.*received task 'CartPole-v1'.*python"):
        train(tmp_path, loop="graph")
    with pytest.raises(InvalidInput, match=r"2 actors and loop='graph'.*--loop python"):
        train(tmp_path, loop="graph", actors=2)
    assert not list(tmp_path.iterdir())


@keras.saving.register_keras_serializable("tests")
def by_python(inputs):
    """Return the inputs through a Python function, which XLA cannot compile."""
    through = tf.numpy_function(lambda x: x, [inputs], tf.float32)
    return inputs + keras.ops.stop_gradient(tf.ensure_shape(through, inputs.shape))


def test_update_that_xla_cannot_compile_is_one_clear_error(tmp_path):
    network = keras.Sequential([keras.layers.Dense(2), keras.layers.Activation(by_python)])
    with pytest.raises(
        InvalidInput, match="XLA cannot compile the training step; use --no-jit-compile: "
    ):
        train(tmp_path, network, jit_compile=True)
    run, _ = train(tmp_path, network, jit_compile=False, steps=40)  # in the same run folder
    assert run.is_finished()


@pytest.mark.parametrize("loop", ["python", pytest.param("graph", marks=pytest.mark.slow)])
def test_drawing_during_training_changes_no_number(tmp_path, loop):
    task = doorkey_task((5,), max_steps=12)
    numbers = {**TOY, "loop": loop, "steps": 60, "log_every": 16, "checkpoint_every": 1000}
    drawn = []

    def draw_episode(network, task, figures, log):
        drawn.append(int(log.rows[-1]["step"]))
        network(np.zeros((1, *task.preprocessor.shape), "float32"))
        return []

    def trained(every):
        keras.utils.set_random_seed(0)
        network = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(task.num_actions)])
        config = DoubleDQNConfig(**numbers, draw_every=every, runs=str(tmp_path / str(every)))
        _, agent = train_double_dqn(task, network, config, draw_episode=draw_episode)
        return agent.network.get_weights()

    alone, with_drawing = trained(0), trained(20)
    assert drawn == [60, 20, 40, 60]  # first run: at the end; second: every 20 steps
    for a, b in zip(alone, with_drawing, strict=True):
        np.testing.assert_array_equal(a, b)


def test_failing_figure_does_not_end_a_run(tmp_path, capsys):
    def draw_episode(*_):
        raise RuntimeError("no display")

    keras.utils.set_random_seed(0)
    task = gymnasium_task("CartPole-v1", max_steps=12)
    config = DoubleDQNConfig(**{**TOY, "steps": 20}, runs=str(tmp_path))
    run, _ = train_double_dqn(task, dense_q_network(2), config, draw_episode=draw_episode)
    assert run.is_finished()
    assert "cannot draw figures of CartPole-v1: RuntimeError: no display" in capsys.readouterr().out


def test_run_prints_its_environment_and_network(tmp_path, capsys):
    train(tmp_path, steps=20)
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines()[:9])
    text = {name: line.strip() for name, line in lines.items()}
    assert text["environment"] == "CartPole-v1, 1 in parallel"
    assert text["observations"].startswith("Box (")
    assert text["actions"] == "Discrete(2): 0, 1"
    assert "TimeLimit" in text["wrappers"] and "ReportSuccess" in text["wrappers"]
    assert text["preprocessing"] == "as_float, result (4,)"
    assert text["network"].endswith(" parameters")
    assert text["run folder"] == f"{tmp_path / 'toy'}, step 0 of 20"


def test_callbacks_see_the_log_and_can_stop_the_training(tmp_path):
    seen = []

    def stop_at_8(step, metrics):
        seen.append((step, metrics["train/epsilon"]))
        return step == 8

    keras.utils.set_random_seed(0)
    task = gymnasium_task("CartPole-v1", max_steps=12)
    config = DoubleDQNConfig(**TOY | {"steps": 20}, runs=str(tmp_path))
    network = dense_q_network(task.num_actions)
    run, _ = train_double_dqn(task, network, config, callbacks=[stop_at_8])
    assert [step for step, _ in seen] == [4, 8]
    assert [row["train/epsilon"] for row in run.log.rows] == pytest.approx([e for _, e in seen])
    assert run.step == 8 and (run.folder.path / "evaluation.json").exists()
    assert (run.folder.export / "1").exists()
    run, _ = train_double_dqn(task, network, config)  # the run continues
    assert run.step == 20


def test_best_weights_are_kept_and_exported_if_asked(tmp_path, monkeypatch):
    """The agent, its checkpoint and its evaluation keep the last weights."""
    returns = iter([1.0, 5.0, 3.0, 2.0, 2.0])

    def evaluate_level(play, level, levels):
        return {"eval/return": next(returns), "eval/return_epsilon_0.05": 0.0, "eval/level": 1}

    monkeypatch.setattr(agents_train, "evaluate_level", evaluate_level)
    weights = {}
    keras.utils.set_random_seed(0)
    task = gymnasium_task("CartPole-v1", max_steps=12, success_return=None)
    options = {"steps": 40, "evaluate_every": 10, "log_every": 10, "checkpoint_every": 40}
    config = DoubleDQNConfig(**TOY | options, runs=str(tmp_path), keep_best=True, export_best=True)
    network = dense_q_network(task.num_actions)

    def keep(step, metrics):
        weights[step] = network.get_weights()

    run, agent = train_double_dqn(task, network, config, callbacks=[keep])
    assert run.best_step == 20
    best, last = (keras.models.load_model(f) for f in (run.folder.best_file, run.folder.model_file))
    policy = json.loads((run.folder.export / "1" / "assets.extra" / "policy.json").read_text())
    assert policy["scores"]["step"] == 20 and policy["scores"]["eval/return"] == 5.0
    for ours, kept in zip(last.get_weights(), agent.policy.get_weights()):
        np.testing.assert_array_equal(ours, kept)
    view = np.array([[0.1, -0.2, 0.3, 0.4]], "float32")
    exported = SavedModelSession(run.folder.export / "1").run("act", {"observation": view})
    np.testing.assert_allclose(exported["q_values"], best(view), atol=1e-6)
    assert not np.allclose(exported["q_values"], agent.policy(view), atol=1e-6)


def test_exporting_the_best_weights_needs_that_they_are_kept():
    with pytest.raises(InvalidInput, match="`export_best` needs `keep_best`"):
        DoubleDQNConfig(export_best=True)
