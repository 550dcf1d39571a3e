"""Format what a run prints: its setup at the start, and hints about its result at the end."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import gymnasium
import keras
import numpy as np

MEASURES = {"eval/success": 1, "eval/accuracy": 1, "eval/return": 1, "eval/loss": -1}
"""Metrics that rank evaluations, the preferred one first; 1: higher is better, -1: lower."""
LAST = 0.2
"""Fraction of a run whose evaluations are compared with the earlier ones."""


_READ = {
    "max": "the maximum over all cells",
    "flatten": "all cells",
    "cell": "the agent's cell",
    "feature": "the agent's cell",
    "attention": "all cells by learned queries",
}
"""Readout of a relational network -> description of the cells that it reads."""


def format_setup(setup: Mapping[str, str]) -> str:
    """Format the setup of a run as an aligned block with one line per entry.

    Example:
        >>> print(format_setup({"network": "mlp, 10 parameters", "device": "CPU"}))
        network  mlp, 10 parameters
        device   CPU
    """
    width = max(map(len, setup))
    return "\n".join(f"{name:{width}}  {text}" for name, text in setup.items())


def describe_env(env: gymnasium.Env) -> dict[str, str]:
    """Return the spaces and the wrappers of an environment, the outermost wrapper last.

    Example:
        >>> setup = describe_env(gymnasium.make("CartPole-v1"))
        >>> setup["observations"], setup["wrappers"]
        ('Box (4,) float32, -inf to inf', 'PassiveEnvChecker, OrderEnforcing, TimeLimit')
    """
    space = env.observation_space
    if env.has_wrapper_attr("packing"):
        space = env.get_wrapper_attr("packing").space
    setup = {"observations": _short(space), "actions": _short(env.action_space)}
    wrappers: list[str] = []
    while isinstance(env, gymnasium.Wrapper):
        wrappers.insert(0, type(env).__name__)
        env = env.env
    return {**setup, "wrappers": ", ".join(wrappers) or "none"}


def _short(space):
    """Format a space in one line; of a `Box`, only the smallest and the largest bound."""
    if isinstance(space, gymnasium.spaces.Box):
        low = space.low.astype(float).min(initial=np.inf)
        high = space.high.astype(float).max(initial=-np.inf)
        return f"Box {space.shape} {space.dtype}, {low:g} to {high:g}"
    return textwrap.shorten(str(space), 90, placeholder=" ...")


def describe_network(network: keras.Model) -> str:
    """Return class, name and parameters of a built network, and what a relational one reads.

    Example:
        >>> layers = [keras.Input((4,)), keras.layers.Dense(2)]
        >>> describe_network(keras.Sequential(layers, name="linear"))
        'Sequential linear, 10 parameters'
    """
    read = _READ.get(getattr(getattr(network, "encoder_layer", network), "readout", ""))
    reads = f", reads {read}" if read else ""
    return f"{type(network).__name__} {network.name}, {network.count_params():,} parameters{reads}"


def evaluations(rows: Sequence[Mapping[str, float]]) -> tuple[str, list[Mapping[str, float]]]:
    """Return the metric that ranks the evaluations in a log, and the entries that contain it.

    With a curriculum, these are the evaluations of the last level. A success that was always 0
    ranks nothing, so the return does. Without an evaluation, the name and the list are empty.

    Example:
        >>> evaluations([{"step": 1, "eval/return": 5.0}, {"step": 2, "train/loss": 0.1}])
        ('eval/return', [{'step': 1, 'eval/return': 5.0}])
    """
    for name in MEASURES:
        found = [row for row in rows if name in row]
        if found and (name != "eval/success" or any(row[name] for row in found)):
            level = found[-1].get("eval/level")
            return name, [row for row in found if row.get("eval/level") == level]
    return "", []


def hints(
    rows: Sequence[Mapping[str, float]],
    longer: str = "train longer",
    kept_step: int | None = None,
) -> Iterator[str]:
    """Yield sentences about evaluations that still improve, have become worse or are poor.

    Args:
        rows: entries of the log.
        longer: how the run can continue.
        kept_step: step of the weights that `--keep-best` has stored, if any.

    Example:
        >>> rows = [{"step": step, "eval/success": step / 200} for step in range(0, 101, 10)]
        >>> next(hints(rows, "continue with --steps 200"))
        'success rose in the last 20 % of the run, from at most 40.0 % to 47.5 % on average: \
continue with --steps 200'
    """
    name, found = evaluations(rows)
    if len(found) < 3:
        return
    sign, short = MEASURES[name], name.removeprefix("eval/")
    values = sign * np.array([row[name] for row in found])
    is_late = np.array([row["step"] for row in found]) > (1 - LAST) * found[-1]["step"]
    before, mean, last = values[~is_late].max(initial=-np.inf), values[is_late].mean(), values[-1]
    is_fraction = name in ("eval/success", "eval/accuracy")

    def show(value):
        return _percent(value) if is_fraction else f"{sign * value:.4g}"

    rises = bool(np.isfinite(before)) and mean > before and not (is_fraction and last == 1)
    if rises:
        verb, bound = ("rose", "at most") if sign > 0 else ("fell", "at least")
        yield (
            f"{short} {verb} in the last {_percent(LAST, 0)} of the run, from {bound} "
            f"{show(before)} to {show(mean)} on average: {longer}"
        )
    best = int(values.argmax())
    if abs(values[best] - last) > 0.1 * abs(values[best]):
        is_kept = found[best]["step"] == kept_step
        where = "checkpoints/ holds" if is_kept else "--keep-best stores"
        yield (
            f"{short} was {show(values[best])} at step {found[best]['step']:,.0f} and is "
            f"{show(last)} now: {where} the weights of the best evaluation"
        )
    solved = found[-1].get("eval/success", 1.0)
    if solved < 0.5 and not rises:
        learned = max((row.get("rollout/success", 0.0) for row in rows), default=0.0)
        cause = "more exploration, another --seed or more --steps may help"
        if learned == 0:
            cause = "no logged training episode succeeded, so explore more or ease the task"
        yield f"success is {_percent(solved)} and did not rise at the end: {cause}"
    noisy = {key: found[-1][key] for key in found[-1] if key.startswith("eval/success_epsilon_")}
    for key, more in noisy.items():
        if found[-1].get("eval/loops", 0.0) > 0 and more > solved:
            yield (
                f"{_percent(found[-1]['eval/loops'])} of the greedy episodes repeat a state; with "
                f"{_percent(float(key.rpartition('_')[2]), 0)} random actions {_percent(more)} are "
                "solved: a recurrent agent can leave such loops"
            )


def _percent(fraction, digits=1):
    return f"{100 * fraction:.{digits}f} %"
