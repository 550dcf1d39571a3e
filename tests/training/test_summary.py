"""The printed summary of a run: its setup and hints based on the log."""

import gymnasium
import numpy as np
import pytest

from rrl_tf.training import FitRun, Run, RunConfig, SupervisedConfig
from rrl_tf.training.summary import describe_env, evaluations, hints

pytestmark = pytest.mark.tf_only


def log(values, name="eval/success", **others):
    return [{"step": 10.0 * (i + 1), name: value, **others} for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (gymnasium.spaces.Box(0, 9, (6, 6, 1), np.uint8), "Box (6, 6, 1) uint8, 0 to 9"),
        (gymnasium.spaces.Box(-1, 2**40, (2,), np.int64), "Box (2,) int64, -1 to 1.09951e+12"),
        (gymnasium.spaces.Box(0, 1, (0, 2)), "Box (0, 2) float32, inf to -inf"),
        (gymnasium.spaces.Discrete(4), "Discrete(4)"),
    ],
)
def test_a_space_is_printed_in_one_line(space, text):
    env = gymnasium.Env()
    env.observation_space, env.action_space = space, gymnasium.spaces.Discrete(2)
    assert describe_env(env)["observations"] == text


def test_a_metric_that_still_rises_is_named_with_its_numbers():
    rows = log([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.4, 0.5, 0.6, 0.8])
    assert list(hints(rows, "continue with --steps 200")) == [
        "success rose in the last 20 % of the run, from at most 50.0 % to 70.0 % on average: "
        "continue with --steps 200"
    ]
    falling = log([9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.5], "eval/loss")
    (hint,) = hints(falling)
    assert hint.startswith("loss fell in the last 20 % of the run, from at least 2 to 0.75 on")


@pytest.mark.parametrize(
    "values", [[0.2, 0.8, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9], [0.5] * 9 + [1.0], [0.1, 0.9]]
)
def test_good_results_and_short_logs_have_no_hint(values):
    assert not list(hints(log(values)))


def test_curriculum_is_judged_by_its_last_level():
    rows = log([0.9, 1.0], **{"eval/level": 1}) + log([0.1, 0.2, 0.3], **{"eval/level": 2})
    assert [row["eval/success"] for row in evaluations(rows)[1]] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("kept", "where"), [(20, "checkpoints/ holds"), (30, "--keep-best")])
def test_a_result_that_has_become_worse_names_the_best_evaluation(kept, where):
    (hint,) = hints(log([0.2, 0.9, 0.8, 0.7, 0.6]), kept_step=kept)
    assert hint.startswith(f"success was 90.0 % at step 20 and is 60.0 % now: {where}")


@pytest.mark.parametrize(
    ("learned", "cause"), [(0.0, "no logged training episode"), (0.1, "more exploration")]
)
def test_a_poor_result_has_a_cause_from_the_log(learned, cause):
    (hint,) = hints(log([0.03] * 5, **{"rollout/success": learned}))
    assert hint.startswith(f"success is 3.0 % and did not rise at the end: {cause}")


def test_returns_are_compared_while_nothing_is_solved():
    rows = log([1.0, 2.0, 3.0, 4.0, 9.0], "eval/return", **{"eval/success": 0.0})
    (rise,) = hints(rows)
    assert rise.startswith("return rose in the last 20 % of the run, from at most 4 to 9 on")
    (hint,) = hints(log([2.0] * 5, "eval/return", **{"eval/success": 0.0}))
    assert hint.startswith("success is 0.0 % and did not rise at the end: no logged training")


def test_loops_that_random_actions_end_are_named():
    others = {"eval/loops": 0.2, "eval/success_epsilon_0.05": 0.95}
    (hint,) = hints(log([0.8] * 5, **others))
    assert "20.0 % of the greedy episodes repeat a state; with 5 % random actions 95.0 %" in hint


def test_wrappers_are_listed_from_the_inside():
    env = gymnasium.wrappers.FlattenObservation(gymnasium.make("CartPole-v1"))
    assert describe_env(env)["wrappers"].endswith("TimeLimit, FlattenObservation")
    assert describe_env(env.unwrapped)["wrappers"] == "none"


def test_fit_prints_its_setup_and_hints_and_keeps_the_best(tmp_path, capsys):
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="tiny")
    model.compile("sgd", "mse")
    config = SupervisedConfig(runs=str(tmp_path), name="run", keep_best=True)
    run = FitRun(config, model, steps=4, steps_per_epoch=1, setup={"data": "ones"})
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["data"].strip() == "ones"
    assert lines["network"].strip() == "Sequential tiny, 3 parameters"
    assert "CPU" in lines["device"] or "GPU" in lines["device"]
    assert lines["run folder"].strip() == f"{tmp_path / 'run'}, step 0 of 4"
    assert lines["watch"].strip() == f"python -m tensorboard.main --logdir {tmp_path / 'run'}"
    losses, weights = [0.5, 0.2, 0.4, 0.3], []

    def measure(step):
        weights.append(model.get_weights())
        return {"eval/loss": losses[step - 1]}

    ones = keras.ops.ones
    tf = pytest.importorskip("tensorflow")
    batch = (ones((8, 2)), ones((8, 1)))
    run.fit(tf.data.Dataset.from_tensors(batch).repeat(), measure=measure)
    assert run.best_step == 2
    best = keras.models.load_model(run.folder.best_file)
    for ours, theirs in zip(best.get_weights(), weights[1]):
        np.testing.assert_array_equal(ours, theirs)
    assert run.folder.model_file.parent.name == "0000000004"
    run.finish({})
    assert "hint: loss was 0.2 at step 2 and is 0.3 now: checkpoints/" in capsys.readouterr().out
    FitRun(config, model, steps=4, steps_per_epoch=1)
    assert capsys.readouterr().out == f"{tmp_path / 'run'} is already trained to step 4\n"


def test_no_model_is_kept_unless_asked(tmp_path):
    run = Run(RunConfig(runs=str(tmp_path), name="run"), 10)
    run.log.write(10, {"eval/success": 1.0})
    run.keep_best(None)
    assert run.best_step is None
