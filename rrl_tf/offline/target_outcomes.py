"""What came of asking for returns: in numbers, in words, as a figure and as a served policy."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from rrl_tf import viz
from rrl_tf.export import export_decision_transformer
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.evaluation import (
    BestWeights,
    TargetReturns,
    action_error_by_return,
)
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy
from rrl_tf.training.run import Run

WEIGHTS = {
    "before_fine_tuning": "before the fine-tuning",
    "last": "last weights",
    "best": "best weights",
}
"""What a summary may tell the returns of, and its name for a reader."""


def finish(
    run: Run,
    data: OfflineData,
    held_out: OfflineData,
    play: TargetReturns,
    best: BestWeights,
    found: Mapping[str, Any] | None = None,
) -> None:
    """Final evaluation, figure and export of a run; the summary begins with what was `found`."""
    scaling = play.policy.scaling
    summary: dict[str, Any] = {
        "data": data.name,
        "environment": data.environment,
        "parameters": play.policy.model.count_params(),
        "data_return": {"mean": float(data.returns().mean()), "max": float(data.returns().max())},
        "action_error": action_error_by_return(play.policy.model, held_out, scaling),
        **(found or {}),
    }
    written = []
    if play.envs:
        summary["last"] = play.table(play.targets)
        if best.exist():
            with best.in_place():  # asked for what they were chosen for, and nothing else
                summary["best"] = play.table([best.kept_target])
        _add_scores(summary, data)
        figure = draw_targets(summary)
        run.log.image(run.step, "targets", viz.figure_to_image(figure))
        written.append(viz.save_figure(figure, run.folder.figures / "targets.png"))
    else:
        known = run.folder.evaluation(run.step)  # what these weights reached when they were played
        summary |= {which: known[which] for which in WEIGHTS if which in known}
    written.append(export(run, data, play.policy, summary))
    run.finish(summary, in_words(summary), written)


def _add_scores(summary: dict[str, Any], data: OfflineData) -> None:
    """Adds the D4RL scores of all returns, where the data are D4RL's."""
    if data.reference_returns:
        for which in WEIGHTS:
            for row in summary.get(which, {}).values():
                row["d4rl_score"] = data.score(row["return"])


def export(
    run: Run, data: OfflineData, policy: TrajectoryPolicy, summary: Mapping[str, Any]
) -> Any:
    """Writes the trained policy as a servable version and returns its folder."""
    model, scaling = policy.model, policy.scaling
    observations = data.episodes[0].observations
    learns_noise = model.action_distribution is not None
    return export_decision_transformer(
        run.folder.export,
        model,
        scaling,
        observations.shape[1:],
        observations.dtype,
        policy={
            "environment": data.environment,
            **_action_names(data),
            "data": data.name,
            "return_scale": scaling.return_scale,
            **({"played_noise": model.noise_scale} if learns_noise else {}),
            "scores": summary.get("last", {}),
        },
    )


def _action_names(data: OfflineData) -> dict[str, list[str]]:
    """What discrete actions are called, where there is an environment that tells."""
    if data.make_env is None or not data.discrete:
        return {}
    with contextlib.closing(data.make_env()) as env:
        told = env.has_wrapper_attr("action_names")
        return {"action_names": list(env.get_wrapper_attr("action_names"))} if told else {}


def in_words(summary: Mapping[str, Any]) -> str:
    """The outcome in a few lines."""
    error = ", ".join(f"{value:.3g}" for value in summary["action_error"].values())
    lines = [
        f"{summary['data']}, mean return {_short(summary['data_return']['mean'])}, best "
        f"{_short(summary['data_return']['max'])}; action error by return, low to high: {error}"
    ]
    if "chosen_noise" in summary:
        tried = ", ".join(f"{k}: {_short(v)}" for k, v in summary["played_noise"].items())
        lines.append(f"  plays {summary['chosen_noise']:g} of the noise; returns of all: {tried}")
    for which, said in WEIGHTS.items():
        for target, row in summary.get(which, {}).items():
            more = [f"{name} {row[name]:.3g}" for name in ("success", "d4rl_score") if name in row]
            lines.append(
                f"  {said}, asked for {target}: {_short(row['return'])} ± "
                f"{_short(row['return_deviation'], 2)} in {row['length']:.0f} steps"
                + "".join(f", {part}" for part in more)
            )
    return "\n".join(lines)


def _short(value: float, digits: int = 4) -> str:
    """So many significant digits, and never an exponent in place of a digit before the point."""
    # Half a unit below, where rounding gives it one more digit.
    return f"{value:.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def draw_targets(summary: Mapping[str, Any]) -> Figure:
    """The figure of returns that were asked for and returns that were reached."""
    curves = {
        said: (
            [float(target) for target in summary[which]],
            [[row["return"] for row in summary[which].values()]],
        )
        for which, said in WEIGHTS.items()
        if which in summary
    }
    title = f"{summary['data']}, {summary['environment']}"
    means = {"mean of the data": summary["data_return"]["mean"]}
    return viz.returns_figure({title: curves}, {title: means})
