"""Play of any policies in any Gymnasium environment, recorded as a Minari data set."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from tqdm import tqdm

from rrl_tf._arguments import positive_int
from rrl_tf._drafts import draft_folder
from rrl_tf.data._packages import optional_package
from rrl_tf.errors import InvalidInput

Policy = Callable[[Any], Any]
"""From an observation to an action."""


@dataclasses.dataclass(frozen=True)
class Player:
    """A policy at several levels of skill.

    Attributes:
        name: of the policy.
        make: function without arguments → the policy; called when a recording begins.
        random_shares: of random actions that it plays with, one level after the other. One who
            plays at random needs no policy.

    Raises:
        ValueError: if there is no level, or a share is not from 0 to 1.

    Example:

    >>> Player("random", random_shares=(1.0,))
    Player(name='random', make=None, random_shares=(1.0,))
    """

    name: str
    make: Callable[[], Policy] | None = None
    random_shares: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        least = 1.0 if self.make is None else 0.0
        if not self.random_shares or not all(least <= s <= 1 for s in self.random_shares):
            raise InvalidInput(
                f"{self.name} must play with shares of random actions from {least:g} to 1; "
                f"received {self.random_shares!r}"
            )

    def __str__(self) -> str:
        return ", ".join(f"{self.name} ({share:.0%} random)" for share in self.random_shares)


def record_episodes(
    folder: str | os.PathLike,
    dataset_id: str,
    make_env: Callable[[], gymnasium.Env],
    players: Sequence[Player],
    episodes: int,
    seed: int = 0,
) -> pathlib.Path:
    """Records play as a Minari data set; the same recording that is there already stays.

    Policies, environment and names are tried before anything is played. The data set appears whole
    or not at all, whatever kills the process.

    Args:
        folder: where Minari data sets are kept; `$MINARI_DATASETS_PATH` of others who read it.
        dataset_id: `NAMESPACE/NAME-vN`.
        make_env: makes the environment; with a `spec`, readers of the data can make it again.
        players: who plays, one after the other.
        episodes: of each player at each of its levels.
        seed: of the environment and the random actions.

    Returns:
        The data set's folder, `load_episodes("minari:FOLDER")`.

    Raises:
        ValueError: if an argument is not what it should be, a policy's action is not one of the
            environment's, or another recording has that name.

    Example:

    >>> make_env, players = lambda: gymnasium.make("CartPole-v1"), [Player("random", None, (1.0,))]
    >>> folder = record_episodes("data", "me/random-v0", make_env, players, 100)  # doctest: +SKIP
    """
    check_dataset_id(dataset_id)
    positive_int("episodes", episodes)
    if not players:
        raise InvalidInput("a recording must have players; received none")
    folder = pathlib.Path(folder)
    with contextlib.closing(make_env()) as env:
        details = {
            "algorithm_name": ", ".join(map(str, players)),
            "description": f"{episodes} episodes of each policy in {_name(env)}, seed {seed}",
        }
        if (folder / dataset_id).exists():
            _check_same(folder / dataset_id, details)
            print(f"{folder / dataset_id} is there already")
            return folder / dataset_id
        policies = [_tried(player, env) for player in players]
    levels = [
        (policy, share)
        for player, policy in zip(players, policies)
        for share in player.random_shares
        for _ in range(episodes)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder, ".recording-") as draft, _minari_folder(draft):
        returns = _record(dataset_id, make_env, levels, seed, details)
        _move(draft, folder, dataset_id, details)
    print(_in_words(returns) + f"\nwritten: {folder / dataset_id}")
    return folder / dataset_id


def _in_words(returns: list[float]) -> str:
    low, mean, high = min(returns), np.mean(returns), max(returns)
    return f"{len(returns):,} episodes, mean return {mean:.3g} ({low:.3g} to {high:.3g})"


def check_dataset_id(dataset_id: str) -> None:
    """Raises `InvalidInput` unless Minari can name a data set so."""
    for package in ("minari", "h5py"):
        optional_package(package, "a recording")
    from minari.dataset.minari_dataset import parse_dataset_id

    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:  # TypeError: without a version
        raise InvalidInput(
            "dataset must be NAMESPACE/NAME-vN of letters, digits, - and _; "
            f"received {dataset_id!r}"
        ) from error


def _name(env: gymnasium.Env) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def _check_same(dataset: pathlib.Path, details: dict[str, str]) -> None:
    """Raises `InvalidInput` if what is there is another recording."""
    try:
        known = json.loads((dataset / "data" / "metadata.json").read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{dataset} is no data set ({error}); choose another name, or remove that folder"
        ) from error
    held = {name: known.get(name, "?") for name in details}
    if held != details:
        there, here = (
            "{description}, by {algorithm_name}".format(**each) for each in (held, details)
        )
        raise InvalidInput(
            f"{dataset} holds {there}; choose another name, or remove that folder; received {here}"
        )


def _tried(player: Player, env: gymnasium.Env) -> Policy | None:
    """The player's policy, if its first action is one of the environment's."""
    if player.make is None:
        return None
    policy = player.make()
    observation, _ = env.reset(seed=0)
    action = policy(observation)
    if not env.action_space.contains(action):
        raise InvalidInput(
            f"{player.name} must choose actions of {env.action_space}; received {action!r}"
        )
    return policy


@contextlib.contextmanager
def _minari_folder(folder: pathlib.Path) -> Iterator[None]:
    """Minari keeps what it writes in this folder; it has no other way to be told."""
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(folder.resolve())
    try:
        yield
    finally:
        del os.environ["MINARI_DATASETS_PATH"]
        if before is not None:
            os.environ["MINARI_DATASETS_PATH"] = before


def _record(
    dataset_id: str,
    make_env: Callable[[], gymnasium.Env],
    levels: Sequence[tuple[Policy | None, float]],
    seed: int,
    details: dict[str, str],
) -> list[float]:
    """Plays an episode of each of the levels, writes the data set and returns the returns."""
    import minari

    rng = np.random.default_rng(seed)
    # Pixels as they were seen: by default, Minari would compress them with a loss.
    with contextlib.closing(minari.DataCollector(make_env(), jpeg_encoding=False)) as env:
        returns = [
            _play(env, policy, share, rng)
            for policy, share in tqdm(levels, unit="episode", mininterval=0.5)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nobody signed the data, and the like
            env.create_dataset(dataset_id=dataset_id, **details)
    return returns


def _play(
    env: gymnasium.Env, policy: Policy | None, random_share: float, rng: np.random.Generator
) -> float:
    """Plays one episode with a share of random actions and returns its return."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    env.action_space.seed(int(rng.integers(2**31)))
    total, over = 0.0, False
    while not over:
        explore = rng.random() < random_share
        action = env.action_space.sample() if explore or policy is None else policy(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return total


def _move(
    draft: pathlib.Path, folder: pathlib.Path, dataset_id: str, details: dict[str, str]
) -> None:
    """Moves a data set that is whole to its place, after the marks of its namespaces."""
    final = folder / dataset_id
    final.parent.mkdir(parents=True, exist_ok=True)
    for mark in draft.rglob("namespace_metadata.json"):
        place = folder / mark.relative_to(draft)
        if not place.exists():
            mark.rename(place)
    try:
        (draft / dataset_id).rename(final)
    except OSError:
        if not final.exists():
            raise
        _check_same(final, details)  # another process was sooner
