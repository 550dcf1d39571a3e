"""Which share of the noise that a policy has learned is played: found out by playing."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

import keras

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.evaluation import TargetReturns
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy
from rrl_tf.training.run import Run

PROGRESS_SEED = 1_000_000
"""Other episodes than those of the final evaluation, which would be flattered by the choice."""


def choose_noise(play: TargetReturns, shares: Sequence[float], episodes: int) -> dict[str, float]:
    """Plays some episodes with every share of the noise, and goes on with the best.

    Policies that were trained without noise fall where they play the mean of what was clipped, and
    some that were trained with it fall where they do not; recorded data do not tell which they are.

    Args:
        play: is asked for its largest target; its policy is replaced, and its model set to the
            share that did best, the first of these.
        shares: of the noise, `CensoredNormal`'s `noise_scale`, each from 0 to 1.
        episodes: of every share, others than those of the final evaluation.

    Returns:
        Dict share, as `f"{share:g}"` → mean return.

    Raises:
        InvalidInput: if a share is another, or the model has learned no noise.

    Example:

    >>> choose_noise(play, (0.0, 1.0), episodes=20)  # doctest: +SKIP
    {'0': 3753.2, '1': 5437.9}
    """
    model, scaling = play.policy.model, play.policy.scaling

    def set_share(share):
        _set_noise_scale(model, share)
        play.policy = TrajectoryPolicy(model, scaling)  # what was traced plays on as it was

    reached = {}
    for share in shares:
        set_share(share)
        reached[share] = play.means(max(play.targets), PROGRESS_SEED, episodes)["return"]
    set_share(_best(reached))
    return {f"{share:g}": value for share, value in reached.items()}


def check_noise(shares: Sequence[float], model: keras.Model) -> None:
    """Raises `InvalidInput` if shares of a noise are to be tried and the model learns none."""
    if shares and model.action_distribution is None:
        raise InvalidInput("played_noises need a distribution of actions; received a point")


def warn_of_untried(shares: Sequence[float], model: keras.Model, playable: bool) -> None:
    """Warns if shares of a noise are to be tried and there is no environment to do so in."""
    if shares and not playable:
        warnings.warn(
            "played_noises are not tried, as the data have no environment; "
            f"{model.noise_scale:g} of the noise is played",
            stacklevel=2,
        )


def take_up_noise(run: Run, model: keras.Model) -> None:
    """Sets a model to the share of the noise that its finished run has chosen, if it has.

    Args:
        run: finished.
        model: its network.
    """
    summary = json.loads((run.folder.path / "evaluation.json").read_text())
    if tried := summary.get("played_noise"):
        # The names of what was tried have six digits, but older runs tell nothing else.
        _set_noise_scale(model, summary.get("chosen_noise", float(_best(tried))))


def _set_noise_scale(model, scale):
    model.noise_scale = model.action_distribution.noise_scale = scale


def _best(reached):
    return max(reached, key=reached.__getitem__)
