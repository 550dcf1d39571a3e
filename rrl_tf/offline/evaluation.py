"""What a policy that is asked for returns achieves: in play, and on recorded episodes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import zipfile
from collections.abc import Iterator, Sequence

import gymnasium
import keras
import numpy as np
from tqdm import tqdm

from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import OfflineData
from rrl_tf.offline.scaling import Scaling
from rrl_tf.offline.trajectory_policy import TrajectoryPolicy, play_episodes
from rrl_tf.offline.windows import Windows
from rrl_tf.training.run_folder import atomic_file


def default_targets(returns: np.ndarray) -> tuple[float, ...]:
    """Five returns to ask for, from the worst to the best of recorded ones.

    Example:

    >>> default_targets(np.array([0.0, 10.0, 4.0]))
    (0.0, 2.5, 5.0, 7.5, 10.0)
    """
    low, high = float(returns.min()), float(returns.max())
    exact = [low + share * (high - low) for share in (0, 0.25, 0.5, 0.75, 1)]
    rounded = [float(f"{target:.3g}") for target in exact]
    # Returns that are nearly alike, as -100,050 and -100,010, keep their digits.
    apart = rounded if len(set(rounded)) == len(exact) else exact
    return tuple(dict.fromkeys(apart))


def is_among(target: float, targets: Sequence[float]) -> bool:
    """Whether a return is shown as one of those to ask for, or that one is the return rounded.

    Example:

    >>> is_among(-0.0632314, [-0.0632]), is_among(0.9748, [0.95])
    (True, False)
    """
    shown = {float(f"{each:g}") for each in targets}
    return bool(shown & {float(f"{target:g}"), float(f"{target:.3g}")})


def check_network(data: OfflineData, network: keras.Model, scaling: Scaling) -> None:
    """Raises `InvalidInput` if a network is for other states or actions than the data's."""
    expected = {
        "state_size": scaling.state_size,
        "action_size": data.action_size,
        "discrete": data.discrete,
    }
    received = {name: getattr(network, name) for name in expected}
    if received != expected:
        wanted, found = (
            ", ".join(f"{name}={value}" for name, value in values.items())
            for values in (expected, received)
        )
        raise InvalidInput(
            f"{data.name} and their scaling need a network with {wanted}; received {found}"
        )


def make_envs(data: OfflineData, count: int) -> list[gymnasium.Env]:
    """So many environments that the data are of, to play in side by side; none if it is not known.

    Raises:
        InvalidInput: if it cannot be made here, or has other observations or actions.
    """
    if data.make_env is None:
        return []
    try:
        envs = [data.make_env() for _ in range(count)]
    except Exception as error:  # whatever an environment of others can raise
        is_mujoco = "mujoco" in str(error).lower()
        way = " by pip install 'gymnasium[mujoco]'" if is_mujoco else ""
        raise InvalidInput(
            f"{data.environment} must be there{way} to play in, or evaluation_episodes be 0, which "
            f"plays nothing; received {error}"
        ) from error
    _check_spaces(data, envs[0])
    return envs


def _check_spaces(data, env):
    """A name is all that many data sets tell of their environment."""
    seen, actions = data.episodes[0].observations.shape[1:], data.action_space
    played = env.action_space
    fits = env.observation_space.shape == seen and type(played) is type(actions)
    if data.discrete:  # the last ones may never have been recorded
        fits = fits and actions.n <= played.n
    else:  # bounds are often told otherwise
        fits = fits and actions.shape == played.shape
    if not fits:
        raise InvalidInput(
            f"{data.name} must be of its environment, {data.environment}, with observations "
            f"{env.observation_space.shape} and actions of {played}; received observations {seen} "
            f"and actions of {actions}"
        )


class TargetReturns:
    """Plays episodes side by side and asks for returns.

    Args:
        policy: `TrajectoryPolicy`; it plays with the weights that its model has at the time.
        envs: E environments.
        targets: returns to ask for.

    Example:

    >>> from rrl_tf.models import BehaviorCloning
    >>> model = BehaviorCloning(4, 2, discrete=True, return_conditioned=True)
    >>> policy = TrajectoryPolicy(model, Scaling(np.zeros(4), np.ones(4), return_scale=500.0))
    >>> envs = [gymnasium.make("CartPole-v1", max_episode_steps=5) for _ in range(3)]
    >>> play = TargetReturns(policy, envs, [100.0, 500.0])
    >>> play.table(play.targets)["500"]  # no pole falls within five steps
    {'return': 5.0, 'return_deviation': 0.0, 'length': 5.0}
    """

    def __init__(
        self,
        policy: TrajectoryPolicy,
        envs: Sequence[gymnasium.Env],
        targets: Sequence[float],
    ) -> None:
        self.policy, self.envs, self.targets = policy, envs, targets

    def means(self, target: float, seed: int = 0, episodes: int | None = None) -> dict[str, float]:
        """Means over episodes that are asked for one return.

        Args:
            target: the return.
            seed: of the first environment's reset; the others' count up.
            episodes: at most E; by default as many.

        Returns:
            Dict of `"return"`, its standard deviation `"return_deviation"`, `"length"`, and
            `"success"` where the environment reports it.
        """
        envs = self.envs[:episodes]
        played = play_episodes(self.policy, envs, target, range(seed, seed + len(envs)))
        success = {"success": float(played["success"].mean())} if "success" in played else {}
        return {
            "return": float(played["return"].mean()),
            "return_deviation": float(played["return"].std()),
            "length": float(played["length"].mean()),
            **success,
        }

    def table(self, targets: Sequence[float], seed: int = 0) -> dict[str, dict[str, float]]:
        """Dict target → `means` of E episodes.

        A target is written as `f"{target:g}"`, with all its digits where those are too few to tell
        targets apart.
        """
        asked = dict.fromkeys(map(float, targets))
        names = [f"{target:g}" for target in asked]
        if len(set(names)) < len(names):
            names = [repr(target) for target in asked]
        bar = tqdm(zip(names, asked), "targets", len(names), unit="target", leave=False)
        return {name: self.means(target, seed) for name, target in bar}


class BestWeights:
    """The weights of a model that did best so far, kept in a file.

    Args:
        file: path of an `.npz` file, written whole or not at all; what it holds stays the best
            until more is offered, if it was asked for the same.
        model: built `keras.Model`.
        score: what has been reached already, of a file that is older and does not tell.
        target: return that is asked for when a score is reached.

    Attributes:
        score: what is to be reached.
        kept_target: what was asked for when what is kept reached its score.

    Raises:
        InvalidInput: if the file cannot be read.

    Example:

    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    >>> best = BestWeights("best.npz", model)
    >>> for score, weight in ((0.7, 1.0), (0.5, 2.0)):
    ...     model.set_weights([np.array([[weight]])])
    ...     best.offer(score)  # keeps the weights the model has now, if none did better
    >>> with best.in_place():
    ...     model.get_weights()[0].tolist()
    [[1.0]]
    """

    def __init__(
        self,
        file: str | os.PathLike,
        model: keras.Model,
        score: float = -np.inf,
        target: float = 0.0,
    ) -> None:
        self.file, self.model = pathlib.Path(file), model
        self.score, self._target, self.kept_target = score, target, target
        known = self._read() if self.exist() else {}
        if "target" in known:
            self.kept_target = float(known["target"])
            self.score = float(known["score"]) if self.kept_target == target else -np.inf

    def offer(self, score: float) -> None:
        """Keeps the model's weights, unless others did better."""
        if score >= self.score:
            self.score, self.kept_target = score, self._target
            kept = {f"arr_{i}": weights for i, weights in enumerate(self.model.get_weights())}
            kept |= {"score": np.array(score), "target": np.array(self._target)}
            with atomic_file(self.file) as draft, draft.open("wb") as file:
                np.savez(file, **kept)

    def exist(self) -> bool:
        """Whether any have been kept."""
        return self.file.exists()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the best weights as long as this is entered, and its own again after."""
        own, kept = self.model.get_weights(), self._read()
        self.model.set_weights([kept[f"arr_{i}"] for i in range(len(own))])
        try:
            yield
        finally:
            self.model.set_weights(own)

    def _read(self):
        try:
            with np.load(self.file) as arrays:
                return dict(arrays)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InvalidInput(
                f"{self.file} cannot be read ({error}); remove it to go on without it"
            ) from error


def validation_windows(
    data: OfflineData,
    scaling: Scaling,
    context_length: int,
    count: int = 256,
    output: str = "action",
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Windows of held-out episodes as `validation_data` of `fit`, the same ones at every call.

    Args:
        data: held-out episodes.
        scaling: of the data that are trained on.
        context_length: K.
        count: B.
        output: of the network, that is to tell the actions.

    Returns:
        `(inputs, targets, weights)`, as `Windows.dataset` has them.
    """
    windows = Windows(data, context_length, condition=scaling.condition)
    batch = scaling.window(windows.batch(count, seed=0))
    inputs = {name: np.asarray(values) for name, values in batch.items()}
    return inputs, {output: inputs["actions"]}, {output: inputs["mask"]}


def action_error_by_return(
    model: keras.Model, data: OfflineData, scaling: Scaling, count: int = 512
) -> dict[str, float]:
    """Error of predicted actions on held-out episodes, by the return that was still to come.

    It needs no environment, and tells whether good play is learned as well as bad.

    Args:
        model: `DecisionTransformer`, or any model that is called alike.
        data: held-out episodes.
        scaling: of the data that were trained on.
        count: windows whose last action is predicted.

    Returns:
        Dict `"quarter_1"`, ... of the windows by their return-to-go, low to high → the share of
        wrong actions, or the mean squared error of continuous ones.
    """
    batch, targets, _ = validation_windows(data, scaling, model.context_length, count)
    predicted = np.asarray(model.predict(batch, verbose=0)["action"])[:, -1]
    actual = targets["action"][:, -1]
    if data.discrete:
        errors = (predicted.argmax(-1) != actual.argmax(-1)).astype(float)
    else:
        errors = ((predicted - actual) ** 2).mean(axis=-1)
    order = np.argsort(batch["returns_to_go"][:, -1, 0], kind="stable")
    parts = np.array_split(errors[order], 4)
    return {f"quarter_{i}": float(part.mean()) for i, part in enumerate(parts, start=1)}
