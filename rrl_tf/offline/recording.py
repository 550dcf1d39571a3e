"""Record episodes of policies that explore as a Minari dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from tqdm import tqdm

from rrl_tf._arguments import number_from, one_of, positive_int
from rrl_tf._atomic import draft_folder
from rrl_tf._optional_packages import optional_package
from rrl_tf.envs.checks import CheckedEnv, name_of
from rrl_tf.errors import InvalidInput
from rrl_tf.offline.episodes import check_action_space
from rrl_tf.offline.sources import is_minari_id

Policy = Callable[[Any], Any]
"""Function that maps an observation to an action."""

NOISES = ("random", "clipped", "tanh")
MAX_TANH_MEAN = 0.999
"""Largest scaled action to which tanh noise is added, because atanh(1) is infinite."""


def exploring(
    policy: Policy | None,
    space: gymnasium.Space,
    rng: np.random.Generator,
    noise: str,
    level: float,
) -> Policy:
    """Return a policy that adds exploration to `policy`, for one episode.

    Args:
        policy: policy without exploration. None means random actions, or noise around the middle of
            the action bounds.
        space: action space. It must be a bounded `Box` of vectors unless `noise` is `"random"`.
        rng: random generator.
        noise: `"random"` replaces some actions by random actions. `"clipped"` adds normal noise and
            clips the result to the action bounds, so that many actions are exactly at a bound.
            `"tanh"` adds normal noise before a tanh that maps to the action bounds, as in SAC.
        level: with `"random"`, the fraction of random actions. Otherwise, the standard deviation of
            the noise, where 1 is half the interval between the bounds. Noisy actions are rounded
            if the space has integers.
    """
    if noise == "random":
        space.seed(int(rng.integers(2**31)))
        return functools.partial(_random_action, policy, space, rng, level)
    if not isinstance(space, Box) or len(space.shape) != 1 or not space.is_bounded():
        raise InvalidInput(
            f"the action space must be a bounded Box of vectors for noise; received {space}"
        )
    low, high = space.low.astype("float64"), space.high.astype("float64")
    middle, half = (low + high) / 2, (high - low) / 2

    def act(observation: Any) -> Any:
        mean = middle if policy is None else np.asarray(policy(observation))
        if mean.shape != middle.shape:
            raise InvalidInput(
                f"a policy's action must have the shape {middle.shape}; received {mean.shape}"
            )
        normal = rng.normal(size=mean.shape) * level
        if noise == "clipped":
            action = mean + normal * half
        else:
            scaled = (mean - middle) / np.where(half > 0, half, 1.0)
            scaled = np.arctanh(np.clip(scaled, -MAX_TANH_MEAN, MAX_TANH_MEAN))
            action = middle + half * np.tanh(scaled + normal)
        if space.dtype.kind in "iu":
            return np.clip(np.rint(action), low, high).astype(space.dtype)
        return np.clip(action.astype(space.dtype), space.low, space.high)

    return act


def _random_action(
    policy: Policy | None,
    space: gymnasium.Space,
    rng: np.random.Generator,
    level: float,
    observation: Any,
) -> Any:
    if rng.random() < level or policy is None:
        return space.sample()
    action = policy(observation)
    if isinstance(space, Box) and space.dtype.kind == "f" and np.shape(action) == space.shape:
        return np.clip(action, space.low, space.high).astype(space.dtype)
    return action


@dataclasses.dataclass(frozen=True)
class Player:
    """A policy and its exploration.

    Attributes:
        name: name of the policy in the metadata of a recording.
        make: function that creates the policy when a recording starts. None means exploration
            without a policy.
        noise, level: see `exploring`.
        fraction: relative share of the steps of a recording; it is divided by the sum over all
            players.

    Raises:
        InvalidInput: if a number is out of range.

    Example:
        >>> players = [Player("random", level=1.0), Player("mine", lambda: lambda observation: 0)]
        >>> print(*players, sep=", ")
        random (100% random), mine (0% random)
    """

    name: str
    make: Callable[[], Policy] | None = None
    noise: str = "random"
    level: float = 0.0
    fraction: float = 1.0

    def __post_init__(self) -> None:
        one_of("noise", self.noise, NOISES)
        if not 0 < self.fraction < math.inf:
            raise InvalidInput(
                f"{self.name}: `fraction` must be greater than 0; received {self.fraction!r}"
            )
        is_random = self.noise == "random"
        lowest = 1 if is_random and self.make is None else 0
        number_from(f"level of {self.name}", self.level, lowest, 1 if is_random else math.inf)

    def __str__(self) -> str:
        if self.noise == "random":
            return f"{self.name} ({100 * self.level:g}% random)"
        return f"{self.name} ({self.noise} noise {self.level:g})"


def record_episodes(
    folder: str | os.PathLike,
    dataset_id: str,
    make_env: Callable[[], gymnasium.Env],
    players: Sequence[Player],
    episodes: int | None = None,
    seed: int = 0,
    steps: int | None = None,
) -> pathlib.Path:
    """Record episodes as a Minari dataset, unless the same recording exists.

    Policies, environment and names are checked before the recording. Actions, observations and
    rewards are checked during the recording. The dataset appears only when it is complete.

    Args:
        folder: folder of Minari datasets. To read a dataset by its ID, set `$MINARI_DATASETS_PATH`
            to this folder.
        dataset_id: ID of the dataset, `NAMESPACE/NAME-vN`.
        make_env: function that creates the environment. If the environment has a `spec`, the
            dataset stores it, and programs that read the dataset can create the environment.
        players: players, which play one after the other.
        episodes: number of episodes of each player.
        seed: seed of the environment and the exploration.
        steps: total number of steps, instead of `episodes`. Each player plays whole episodes until
            it has its fraction of the steps.

    Returns:
        The folder of the dataset, for `load_episodes("minari:FOLDER")`.

    Raises:
        InvalidInput: if an argument is invalid, if `load_episodes` could not read the data, if a
            policy returns an invalid action, or if the dataset ID belongs to another recording.

    Example:
        >>> make_env, players = lambda: gymnasium.make("CartPole-v1"), [Player("random", level=1.0)]
        >>> folder = record_episodes("data", "me/random-v0", make_env, players, 9)  # doctest: +SKIP
    """
    check_dataset_id(dataset_id)
    quotas, unit = _quotas(players, episodes, steps)
    folder = pathlib.Path(folder)
    target = folder / dataset_id
    with contextlib.closing(_check_env(make_env())) as env:
        amount = f"{episodes} episodes of each policy" if episodes else f"{_listed(quotas)} steps"
        details = {
            "algorithm_name": _listed(players),
            "description": f"{amount} in {_describe(env)}, seed {seed}",
        }
        if target.exists():
            _check_same(target, details)
            print(f"{target} exists already")
            return target
        policies = [_make_policy(player, env) for player in players]
    folder.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder) as draft, _minari_folder(draft):
        parts = list(zip(players, policies, quotas))
        returns = _record(dataset_id, make_env, parts, unit, seed, details)
        _move(draft, folder, dataset_id, details)
    for player, reached in [*zip(players, returns), ("all", list(itertools.chain(*returns)))]:
        _print_returns(str(player), reached)
    print(f"written: {target}")
    return target


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))


def _print_returns(name: str, returns: Sequence[float]) -> None:
    low, mean, high = min(returns), np.mean(returns), max(returns)
    count = f"{len(returns):,} episodes"
    print(f"{name}: {count}, mean return {mean:.4g} ({low:.4g} to {high:.4g})")


def _quotas(
    players: Sequence[Player], episodes: int | None, steps: int | None
) -> tuple[list[int], str]:
    """Return the number of episodes or steps of each player, and the unit."""
    if not players:
        raise InvalidInput("a recording must have players; received none")
    if (episodes is None) == (steps is None):
        raise InvalidInput(
            f"a recording must have either episodes or steps; received {episodes!r} and {steps!r}"
        )
    if steps is None:
        return [positive_int("episodes", episodes)] * len(players), "episode"
    steps, total = positive_int("steps", steps), sum(player.fraction for player in players)
    return [max(1, int(player.fraction / total * steps)) for player in players], "step"


def check_dataset_id(dataset_id: str) -> None:
    """Raise `InvalidInput` unless the Minari packages are installed and the dataset ID is valid."""
    for package in ("minari", "h5py"):
        optional_package(package, "a recording")
    if not is_minari_id(dataset_id):
        raise InvalidInput(
            "the dataset ID must be NAMESPACE/NAME-vN of letters, digits, - and _; "
            f"received {dataset_id!r}"
        )


def _describe(env: gymnasium.Env) -> str:
    """Return the environment's name and its arguments that differ from the registered ones."""
    if env.spec is None or env.spec.id not in gymnasium.registry:
        return name_of(env)
    current, registered = (
        {**spec.kwargs, "max_episode_steps": spec.max_episode_steps}
        for spec in (env.spec, gymnasium.spec(env.spec.id))
    )
    changed = ", ".join(
        f"{name}={value!r}"
        for name, value in sorted(current.items())
        # Leave out the rendering, which has no effect on episodes, and values whose repr contains
        # an address, which differs between processes.
        if repr(value) != repr(registered.get(name))
        and name != "render_mode"
        and " at 0x" not in repr(value)
    )
    return f"{name_of(env)} with {changed}" if changed else name_of(env)


def _check_same(dataset: pathlib.Path, details: dict[str, str]) -> None:
    """Raise `InvalidInput` unless the metadata of a dataset equal those of this recording."""
    try:
        metadata = json.loads((dataset / "data" / "metadata.json").read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{dataset} is not a dataset ({error}). Choose another ID or remove the folder."
        ) from error
    existing = {name: metadata.get(name, "?") for name in details}
    if existing != details:
        text = "{description}, by {algorithm_name}"
        raise InvalidInput(
            f"{dataset} must contain this recording: {text.format(**details)}; received "
            f"{text.format(**existing)}. Choose another ID or remove the folder."
        )


def _check_env(env: gymnasium.Env) -> gymnasium.Env:
    """Return the environment with checks and a `spec` that Minari can store.

    Raises:
        InvalidInput: if its episodes cannot be recorded.
    """
    spec = env.unwrapped.spec
    if spec and callable(spec.entry_point):
        # Wrappers copy the spec when it is first read, so replace it before.
        address = _import_path(spec.entry_point)
        env.unwrapped.spec = dataclasses.replace(spec, entry_point=address or spec.entry_point)
    name = name_of(env)
    if env.spec and callable(env.spec.entry_point):
        raise InvalidInput(
            f"{name} must be registered with a string such as 'my_envs:MyEnv', so that others can "
            f"make it; received the entry point {env.spec.entry_point}"
        )
    observations = env.observation_space
    if observations.shape is None or 0 in observations.shape:
        raise InvalidInput(
            f"{name} must have array observations, for instance with "
            f"gymnasium.wrappers.FlattenObservation; received {observations}"
        )
    check_action_space(name, env.action_space)
    return CheckedEnv(env)


def _import_path(function: Callable) -> str | None:
    """Return `module:name` of a class or function, or None if other processes cannot import it."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    importable = getattr(sys.modules.get(module), name, None) is function
    return f"{module}:{name}" if importable and module != "__main__" else None


def _make_policy(player: Player, env: gymnasium.Env) -> Policy | None:
    """Create the player's policy and check its first action."""
    policy = player.make() if player.make else None
    observation, _ = env.reset(seed=0)
    act = exploring(policy, env.action_space, np.random.default_rng(0), player.noise, 0.0)
    _check_action(player, env, act(observation))
    return policy


def _check_action(player: Player, env: gymnasium.Env, action: Any) -> None:
    if not env.action_space.contains(action):
        raise InvalidInput(
            f"{player.name} must return actions in {env.action_space}; received {action!r}"
        )


@contextlib.contextmanager
def _minari_folder(folder: pathlib.Path) -> Iterator[None]:
    """Set the folder that Minari writes to, which is possible by environment variable only."""
    earlier = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(folder.resolve())
    try:
        yield
    finally:
        del os.environ["MINARI_DATASETS_PATH"]
        if earlier is not None:
            os.environ["MINARI_DATASETS_PATH"] = earlier


def _record(
    dataset_id: str,
    make_env: Callable[[], gymnasium.Env],
    parts: Sequence[tuple[Player, Policy | None, int]],
    unit: str,
    seed: int,
    details: dict[str, str],
) -> list[list[float]]:
    """Play all parts, write the dataset and return the returns of each player."""
    import minari

    rng, returns = np.random.default_rng(seed), []
    # By default, Minari stores images as JPEG, which is lossy.
    collector = minari.DataCollector(_check_env(make_env()), jpeg_encoding=False)
    total = sum(quota for _, _, quota in parts)
    with contextlib.closing(collector) as env, tqdm(total=total, unit=unit, mininterval=0.5) as bar:
        for player, policy, quota in parts:
            reached, done = [], 0
            while done < quota:
                episode_return, length = _play(env, player, policy, rng)
                reached.append(episode_return)
                amount = 1 if unit == "episode" else length
                done += amount
                bar.update(amount)
            returns.append(reached)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari warns about missing authors
            env.create_dataset(dataset_id=dataset_id, **details)
    return returns


def _play(
    env: gymnasium.Env, player: Player, policy: Policy | None, rng: np.random.Generator
) -> tuple[float, int]:
    """Play one episode and return its return and length."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    rewards, ended = [], False
    act = exploring(policy, env.action_space, rng, player.noise, player.level)
    while not ended:
        action = act(observation)
        _check_action(player, env, action)
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        ended = terminated or truncated
    return sum(rewards), len(rewards)


def _move(
    draft: pathlib.Path, folder: pathlib.Path, dataset_id: str, details: dict[str, str]
) -> None:
    """Move the metadata of the namespaces and then the complete dataset out of the draft folder."""
    target = folder / dataset_id
    target.parent.mkdir(parents=True, exist_ok=True)
    for metadata in draft.rglob("namespace_metadata.json"):
        place = folder / metadata.relative_to(draft)
        if not place.exists():
            metadata.rename(place)
    try:
        (draft / dataset_id).rename(target)
    except OSError:
        if not target.exists():
            raise
        _check_same(target, details)  # another process has written the dataset meanwhile
