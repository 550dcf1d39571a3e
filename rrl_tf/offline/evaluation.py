"""Evaluate a policy: its returns for target returns, and its errors on held-out episodes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import keras
import numpy as np
from gymnasium.spaces import Box, Discrete
from matplotlib.figure import Figure
from tqdm import tqdm

from rrl_tf import viz
from rrl_tf._arguments import number_from
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_decision_transformer
from rrl_tf.models import DecisionTransformer
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.saved_weights import BestWeights
from rrl_tf.offline.scaling import Scaling, within_rounding
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy, play_episodes
from rrl_tf.offline.windows import Windows
from rrl_tf.training.run import Run

PROGRESS_SEED = 1_000_000
"""Seed of the episodes that select weights and noise scale, not those of the final evaluation."""
WEIGHTS = {
    "before_fine_tuning": "before the fine-tuning",
    "last": "last weights",
    "best": "best weights",
}
"""Dict key of the summary -> label of the weights in texts and figures."""
MIN_RANK_CORRELATION = 0.7
"""Smallest rank correlation of targets and returns at which the returns follow their targets."""


def default_targets(returns: np.ndarray) -> tuple[float, ...]:
    """Return five evenly spaced target returns, from the worst to the best recorded return.

    If all returns are equal up to rounding, there is one target.

    Example:
        >>> default_targets(np.array([0.0, 10.0, 4.0]))
        (0.0, 2.5, 5.0, 7.5, 10.0)
    """
    low, high = float(returns.min()), float(returns.max())
    if within_rounding(high - low, max(abs(low), abs(high))):
        return (high,)
    exact = [low + fraction * (high - low) for fraction in (0, 0.25, 0.5, 0.75, 1)]
    rounded = [float(f"{target:.3g}") for target in exact]
    # Three digits cannot separate targets such as -100,050 and -100,010.
    return tuple(rounded if len(set(rounded)) == len(exact) else exact)


def check_network(data: OfflineData, network: keras.Model, scaling: Scaling) -> None:
    """Raise `InvalidInput` unless the network has the state and action sizes of the data."""
    expected = {
        "state_size": scaling.state_size,
        "action_size": data.action_size,
        "discrete": data.discrete,
    }
    received = {name: getattr(network, name) for name in expected}
    if received != expected:
        raise InvalidInput(f"the network for {data.name} must have {expected}; received {received}")


@contextlib.contextmanager
def make_envs(data: OfflineData, count: int) -> Iterator[list[gymnasium.Env]]:
    """Create `count` environments of the data, and close them at the end of the `with` block.

    The list is empty if the data has no environment.

    Raises:
        InvalidInput: if the environment cannot be created, or if its observations or actions do not
            match the data.
    """
    if data.make_env is None:
        yield []
        return
    with contextlib.ExitStack() as stack:
        try:
            envs = [stack.enter_context(contextlib.closing(data.make_env())) for _ in range(count)]
        except Exception as error:  # an environment may raise any exception
            is_mujoco = "mujoco" in str(error).lower()
            fix = " Use pip install 'gymnasium[mujoco]', or" if is_mujoco else " Use"
            raise InvalidInput(
                f"cannot make the environment {data.environment}; received {error}.{fix} "
                "evaluation_episodes=0, which plays no episodes"
            ) from error
        _check_spaces(data, envs[0])
        yield envs


def _check_spaces(data: OfflineData, env: gymnasium.Env) -> None:
    shape, recorded = data.episodes[0].observations.shape[1:], data.action_space
    observations, actions = env.observation_space.shape, env.action_space
    if isinstance(recorded, Discrete):  # the data may not contain all actions
        matches = isinstance(actions, Discrete) and recorded.n <= actions.n
    else:  # some formats do not store the bounds
        matches = isinstance(actions, Box) and recorded.shape == actions.shape
    if observations != shape or not matches:
        raise InvalidInput(
            f"{data.name} must have observations {observations} and actions of {actions}, those of "
            f"{data.environment}; received observations {shape} and actions of {recorded}"
        )


class ReturnEvaluator:
    """Evaluate a policy by playing episodes with target returns, several at the same time.

    Args:
        policy: `TrajectoryPolicy`; its model's current weights are evaluated.
        envs: E environments.
        targets: target returns.

    Example:
        >>> from rrl_tf.models import BehaviorCloning
        >>> model = BehaviorCloning(4, 2, discrete=True, return_conditioned=True)
        >>> policy = TrajectoryPolicy(model, Scaling(np.zeros(4), np.ones(4), return_scale=500.0))
        >>> envs = [gymnasium.make("CartPole-v1", max_episode_steps=5) for _ in range(3)]
        >>> evaluator = ReturnEvaluator(policy, envs, [100.0, 500.0])
        >>> evaluator.table(evaluator.targets)["500"]  # no pole falls within five steps
        {'return': 5.0, 'return_deviation': 0.0, 'length': 5.0}
    """

    def __init__(
        self, policy: TrajectoryPolicy, envs: Sequence[gymnasium.Env], targets: Sequence[float]
    ) -> None:
        self.policy, self.envs, self.targets = policy, envs, targets

    def means(self, target: float, seed: int = 0, episodes: int | None = None) -> dict[str, float]:
        """Play episodes with one target return, and return the means of their metrics.

        Args:
            target: target return.
            seed: seed of the first environment. The next environments have the seeds `seed + 1`,
                `seed + 2`, ...
            episodes: number of episodes, at most E. None means E.

        Returns:
            Dict of `"return"`, its standard deviation `"return_deviation"`, `"length"`, and
            `"success"` if the environments report it.
        """
        envs = self.envs[:episodes]
        played = play_episodes(self.policy, envs, target, range(seed, seed + len(envs)))
        means = {name: float(values.mean()) for name, values in played.items()}
        return {
            "return": means.pop("return"),
            "return_deviation": float(played["return"].std()),
            **means,
        }

    def table(self, targets: Sequence[float], seed: int = 0) -> dict[str, dict[str, float]]:
        """Return a dict target return -> result of `means` for E episodes.

        The keys are strings with six digits, or with all digits if six cannot distinguish the
        targets.
        """
        targets = list(dict.fromkeys(map(float, targets)))
        names = [f"{target:g}" for target in targets]
        if len(set(names)) < len(names):
            names = [repr(target) for target in targets]
        bar = tqdm(zip(names, targets), "targets", len(names), unit="target", leave=False)
        return {name: self.means(target, seed) for name, target in bar}


def choose_noise_scale(
    evaluator: ReturnEvaluator, scales: Sequence[float], episodes: int
) -> dict[str, float]:
    """Play episodes with each `noise_scale`, and set the one with the highest mean return.

    The best scale cannot be derived from the recorded data. If the recorded policy was trained
    without noise, the mean of its clipped noisy actions may fail. If it was trained with noise, its
    actions without noise may fail.

    Args:
        evaluator: evaluator that plays the episodes, with its largest target. The best scale
            becomes the `noise_scale` of its model, and its policy is replaced. If scales are
            equally good, the first one is chosen.
        scales: values of `noise_scale` from 0 to 1.
        episodes: number of episodes for each scale.

    Returns:
        Dict scale (a string, `f"{scale:g}"`) -> mean return.

    Example:
        >>> choose_noise_scale(evaluator, (0.0, 1.0), episodes=20)  # doctest: +SKIP
        {'0': 3753.2, '1': 5437.9}
    """
    model, scaling = evaluator.policy.model, evaluator.policy.scaling
    target, reached = max(evaluator.targets), {}
    for scale in scales:
        set_noise_scale(model, scale)
        evaluator.policy = TrajectoryPolicy(model, scaling)  # traced functions keep the old scale
        reached[scale] = evaluator.means(target, PROGRESS_SEED, episodes)["return"]
    set_noise_scale(model, max(reached, key=reached.__getitem__))
    evaluator.policy = TrajectoryPolicy(model, scaling)
    return {f"{scale:g}": value for scale, value in reached.items()}


def set_noise_scale(model: keras.Model, scale: float) -> None:
    """Set the `noise_scale` of a model with an action distribution.

    Functions that are already traced keep the old scale.
    """
    scale = number_from("noise_scale", scale, 0, 1)
    model.noise_scale = model.action_distribution.noise_scale = scale


def validation_windows(
    data: OfflineData,
    scaling: Scaling,
    context_length: int,
    count: int = 256,
    output: str = "action",
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return windows of held-out episodes as the `validation_data` of `fit`.

    The windows are the same in every call.

    Args:
        data: held-out episodes.
        scaling: scaling of the training data.
        context_length: K, number of steps in a window.
        count: number of windows.
        output: name of the network output that predicts actions.

    Returns:
        `(inputs, targets, weights)`, as in `Windows.dataset`.
    """
    windows = Windows(data, context_length, condition=scaling.condition)
    batch = scaling.window(windows.batch(count, seed=0))
    inputs = {name: np.asarray(values) for name, values in batch.items()}
    return inputs, {output: inputs["actions"]}, {output: inputs["mask"]}


def action_error_by_return(
    model: keras.Model, data: OfflineData, scaling: Scaling, count: int = 512
) -> dict[str, float]:
    """Return the error of predicted actions on held-out episodes, for low to high returns-to-go.

    The errors show, without an environment, whether the model predicts the actions of good episodes
    as well as those of bad ones.

    Args:
        model: `DecisionTransformer` or `BehaviorCloning`.
        data: held-out episodes.
        scaling: scaling of the training data.
        count: number of windows. Only the last action of each window is predicted.

    Returns:
        Dict `"quarter_1"` to `"quarter_4"` -> error. The windows, sorted by return-to-go from low
        to high, are divided into four equally large groups. The error is the fraction of wrong
        discrete actions, or the mean squared error of continuous actions.
    """
    batch, targets, _ = validation_windows(data, scaling, model.context_length, count)
    predicted = np.asarray(model.predict(batch, verbose=0)["action"])[:, -1]
    actual = targets["action"][:, -1]
    if data.discrete:
        errors = (predicted.argmax(-1) != actual.argmax(-1)).astype(float)
    else:
        errors = ((predicted - actual) ** 2).mean(axis=-1)
    order = np.argsort(batch["returns_to_go"][:, -1, 0], kind="stable")
    quarters = np.array_split(errors[order], 4)
    return {f"quarter_{i}": float(part.mean()) for i, part in enumerate(quarters, start=1)}


def target_following(table: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return how well the returns of a policy follow their target returns.

    Args:
        table: dict target return -> dict with the `"return"`, as from `ReturnEvaluator.table`.

    Returns:
        Empty dict if there are fewer than three targets. Otherwise a dict of

        - `"rank_correlation"`: Spearman's rank correlation of targets and returns, or 0 if all
          returns are equal;
        - `"mean_error"`: mean absolute difference of target and return;
        - `"constant_error"`: the smallest mean error of a policy that ignores its target;
        - `"followed"`: whether the correlation is at least `MIN_RANK_CORRELATION` and the mean
          error is smaller than `"constant_error"`.

    Example:
        >>> target_following({"0": {"return": 1.0}, "5": {"return": 4.0}, "9": {"return": 9.0}})
        {'rank_correlation': 1.0, 'mean_error': 0.667, 'constant_error': 3.0, 'followed': True}
    """
    if len(table) < 3:
        return {}
    targets = np.array([float(target) for target in table])
    returns = np.array([row["return"] for row in table.values()])
    # Ranks relative to their mean, times two; equal values have the same rank.
    ranks, others = (np.sign(x[:, None] - x).sum(axis=1) for x in (targets, returns))
    found = {
        "rank_correlation": ranks @ others / (np.linalg.norm(ranks) * np.linalg.norm(others) or 1),
        "mean_error": np.abs(returns - targets).mean(),
        "constant_error": np.abs(np.median(targets) - targets).mean(),
    }
    rounded = {name: float(f"{value:.3g}") for name, value in found.items()}
    is_ordered = rounded["rank_correlation"] >= MIN_RANK_CORRELATION
    is_close = rounded["mean_error"] < rounded["constant_error"]
    return {**rounded, "followed": is_ordered and is_close}


def finish(
    run: Run,
    data: OfflineData,
    held_out: OfflineData,
    evaluator: ReturnEvaluator,
    best: BestWeights,
    results: Mapping[str, Any],
) -> None:
    """Evaluate a trained policy, plot its returns, export it and finish its run.

    Args:
        run: run whose training is complete.
        data: all episodes.
        held_out: episodes that were not used for training.
        evaluator: evaluator of the policy. If it has no environments, the summary keeps the returns
            of an earlier evaluation of the run.
        best: best weights, evaluated with the target return that selected them.
        results: more entries of the summary.
    """
    model, scaling = evaluator.policy.model, evaluator.policy.scaling
    returns = data.returns()
    summary: dict[str, Any] = {
        "data": data.name,
        "environment": data.environment,
        "parameters": model.count_params(),
        "data_return": {"mean": float(returns.mean()), "max": float(returns.max())},
        "action_error": action_error_by_return(model, held_out, scaling),
        **results,
    }
    written = []
    if evaluator.envs:
        summary["last"] = evaluator.table(evaluator.targets)
        if best.exists():
            with best.restored():
                summary["best"] = evaluator.table([best.kept_target])
        for table in (summary.get(name, {}) for name in WEIGHTS if data.reference_returns):
            for row in table.values():
                row["d4rl_score"] = data.score(row["return"])
        following = summary["target_following"] = target_following(summary["last"])
        scalars = {f"return_target_{name}": row["return"] for name, row in summary["last"].items()}
        scalars |= {f"target_{name}": value for name, value in following.items()}
        run.log.write(run.step, {f"eval/{name}": float(x) for name, x in scalars.items()})
        figure = _returns_figure(summary)
        run.log.image(run.step, "targets", viz.figure_to_image(figure))
        written.append(viz.save_figure(figure, run.folder.figures / "targets.png"))
    else:
        earlier = run.folder.evaluation(run.step)
        summary |= {
            name: earlier[name] for name in (*WEIGHTS, "target_following") if name in earlier
        }
    scores = summary.get("last", {})
    written.append(export_trajectory_policy(run.folder.export, data, evaluator.policy, scores))
    labels = {name: f"target return, {label}" for name, label in WEIGHTS.items()}
    report = format_summary(summary)
    if not summary.get("target_following", {}).get("followed", True):
        advice = (
            "the returns of the policy do not follow its target returns; record policies of "
            "different skill, or train longer"
        )
        if not isinstance(model, DecisionTransformer):
            advice += ", or use the preset `fast`"
        report += f"\n{advice}"
        warnings.warn(advice, stacklevel=2)
    run.finish(summary, report, written, labels=labels)


def export_trajectory_policy(
    folder: str | os.PathLike,
    data: OfflineData,
    policy: TrajectoryPolicy,
    scores: Mapping[str, Any],
) -> pathlib.Path:
    """Export a policy as a new version for a server.

    Args:
        folder: folder of the versions.
        data: episodes that the policy was trained on.
        policy: the policy.
        scores: JSON-able results of the evaluation, for `policy.json`.

    Returns:
        The folder of the version.
    """
    model, scaling = policy.model, policy.scaling
    observations = data.episodes[0].observations
    learns_noise = model.action_distribution is not None
    details = {
        "environment": data.environment,
        **_action_names(data),
        "data": data.name,
        "return_scale": scaling.return_scale,
        **({"noise_scale": model.noise_scale} if learns_noise else {}),
        "scores": scores,
    }
    shape, dtype = observations.shape[1:], observations.dtype
    return export_decision_transformer(folder, model, scaling, shape, dtype, details)


def _action_names(data: OfflineData) -> dict[str, list[str]]:
    """Return the names of discrete actions if the environment has them."""
    if data.make_env is None or not data.discrete:
        return {}
    with contextlib.closing(data.make_env()) as env:
        if not env.has_wrapper_attr("action_names"):
            return {}
        return {"action_names": list(env.get_wrapper_attr("action_names"))}


def format_summary(summary: Mapping[str, Any]) -> str:
    """Return a summary as a few lines of text."""
    errors = ", ".join(f"{value:.3g}" for value in summary["action_error"].values())
    recorded = summary["data_return"]
    lines = [
        f"{summary['data']}: mean return {_digits(recorded['mean'])}, best "
        f"{_digits(recorded['max'])}; mean action error on held-out episodes, for the quarters of "
        f"their steps from the lowest to the highest return-to-go: {errors}"
    ]
    if following := summary.get("target_following"):
        verb = "follow" if following["followed"] else "do not follow"
        lines.append(
            f"returns {verb} their targets: rank correlation {following['rank_correlation']:.2f}, "
            f"mean distance {_digits(following['mean_error'])}; with the best constant return for "
            f"all targets it would be {_digits(following['constant_error'])}"
        )
    if "chosen_noise" in summary:
        tried = ", ".join(f"{k}: {_digits(v)}" for k, v in summary["noise_scales"].items())
        lines.append(f"noise scale {summary['chosen_noise']:g}; returns of all scales: {tried}")
    for name, label in WEIGHTS.items():
        for target, row in summary.get(name, {}).items():
            extra = [f", {key} {row[key]:.3g}" for key in ("success", "d4rl_score") if key in row]
            lines.append(
                f"  {label}, target {target}: return {_digits(row['return'])} ± "
                f"{_digits(row['return_deviation'], 2)} in {row['length']:.0f} steps"
                + "".join(extra)
            )
    return "\n".join(lines)


def _digits(value: float, digits: int = 4) -> str:
    """Return a number with this many significant digits, without an exponent for large numbers."""
    return f"{value:.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def _returns_figure(summary: Mapping[str, Any]) -> Figure:
    curves = {
        label: (
            [float(target) for target in summary[name]],
            [[row["return"] for row in summary[name].values()]],
        )
        for name, label in WEIGHTS.items()
        if name in summary
    }
    title = f"{summary['data']}, {summary['environment']}"
    means = {"mean of the data": summary["data_return"]["mean"]}
    return viz.returns_figure({title: curves}, {title: means})
