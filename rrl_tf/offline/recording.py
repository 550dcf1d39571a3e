"""Play of any policies in any Gymnasium environment, recorded as a Minari data set."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from tqdm import tqdm

from rrl_tf._arguments import finite, number_from, one_of, positive_int
from rrl_tf._atomic_dir import draft_folder
from rrl_tf._optional_packages import optional_package
from rrl_tf.errors import InvalidInput
from rrl_tf.offline._minari_names import is_minari_id
from rrl_tf.offline.episodes import _check_action_space
from rrl_tf.offline.exploration import EXPLORATIONS, Policy


@dataclasses.dataclass(frozen=True)
class Player:
    """A policy at one level of skill.

    Attributes:
        name: of the policy; who has the same one is taken for the same.
        make: function without arguments → the policy; called when a recording begins. None plays
            at random: any actions, or nothing but noise.
        noise: how it explores, one of `EXPLORATIONS`: `"random"` replaces actions by random ones,
            `"clipped"` and `"tanh"` add noise to continuous ones.
        level: share of random actions, or the noise's standard deviation in half intervals between
            the bounds of the actions.
        share: of a recording's steps, beside the other players' shares.

    Raises:
        ValueError: if a number is not what it should be.

    Example:

    >>> players = [Player("random", level=1.0), Player("mine", lambda: lambda observation: 0)]
    >>> print(*players, sep=", ")
    random (100% random), mine (0% random)
    """

    name: str
    make: Callable[[], Policy] | None = None
    noise: str = "random"
    level: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        one_of("noise", self.noise, tuple(EXPLORATIONS))
        if not 0 < self.share < math.inf:
            raise InvalidInput(
                f"{self.name}'s share of the steps must be greater than 0; received {self.share!r}"
            )
        if self.noise == "random":
            least = 1 if self.make is None else 0
            number_from(f"{self.name}'s share of random actions", self.level, least, 1)
        else:
            number_from(f"{self.name}'s noise", self.level, 0)

    def __str__(self) -> str:
        if self.noise == "random":
            return f"{self.name} ({100 * self.level:g}% random)"
        return f"{self.name} ({self.noise} noise {self.level:g})"


class _Amount(NamedTuple):
    """The least that a player plays: whole episodes, until there are as many of both."""

    episodes: int = 0
    steps: int = 0


def record_episodes(
    folder: str | os.PathLike,
    dataset_id: str,
    make_env: Callable[[], gymnasium.Env],
    players: Sequence[Player],
    episodes: int | None = None,
    seed: int = 0,
    steps: int | None = None,
) -> pathlib.Path:
    """Records play as a Minari data set; the same recording that is there already stays.

    Policies, environment and names are tried before anything is played, every action and number as
    it comes. The data set appears whole or not at all, whatever kills the process.

    Args:
        folder: where Minari data sets are kept; `$MINARI_DATASETS_PATH` of others who read it.
        dataset_id: `NAMESPACE/NAME-vN`.
        make_env: makes the environment; with a `spec`, readers of the data can make it again.
        players: who plays, one after the other.
        episodes: of each player.
        seed: of the environment and the random actions.
        steps: of all players together, by their shares, in place of `episodes`. An episode that
            has begun is played to its end.

    Returns:
        The data set's folder, `load_episodes("minari:FOLDER")`.

    Raises:
        ValueError: if an argument is not what it should be, the play could not be read again, a
            policy's action is not one of the environment's, or another recording has that name.

    Example:

    >>> make_env, players = lambda: gymnasium.make("CartPole-v1"), [Player("random", level=1.0)]
    >>> folder = record_episodes("data", "me/random-v0", make_env, players, 100)  # doctest: +SKIP
    """
    check_dataset_id(dataset_id)
    amounts = _amounts(players, episodes, steps)
    folder = pathlib.Path(folder)
    with contextlib.closing(make_env()) as env:
        _recordable(env)
        details = {
            "algorithm_name": ", ".join(map(str, players)),
            "description": f"{_amounts_in_words(amounts)} in {_described(env)}, seed {seed}",
        }
        if (folder / dataset_id).exists():
            _check_same(folder / dataset_id, details)
            print(f"{folder / dataset_id} is there already")
            return folder / dataset_id
        policies = [_tried(player, env) for player in players]
    folder.mkdir(parents=True, exist_ok=True)
    with draft_folder(folder) as draft, _minari_folder(draft):
        parts = list(zip(players, policies, amounts))
        returns = _record(dataset_id, make_env, parts, seed, details)
        _move(draft, folder, dataset_id, details)
    for player, its in zip(players, returns):
        print(f"{player}: {_returns_in_words(its)}")
    print(f"all: {_returns_in_words(list(itertools.chain(*returns)))}")
    print(f"written: {folder / dataset_id}")
    return folder / dataset_id


def _amounts(players: Sequence[Player], episodes: int | None, steps: int | None) -> list[_Amount]:
    """How much each of the players plays."""
    if not players:
        raise InvalidInput("a recording must have players; received none")
    if (episodes is None) == (steps is None):
        raise InvalidInput(
            f"a recording needs either episodes or steps; received {episodes!r} and {steps!r}"
        )
    if steps is None:
        return [_Amount(episodes=positive_int("episodes", episodes)) for _ in players]
    steps, whole = positive_int("steps", steps), sum(player.share for player in players)
    return [_Amount(steps=max(1, int(player.share / whole * steps))) for player in players]


def _amounts_in_words(amounts: Sequence[_Amount]) -> str:
    if amounts[0].episodes:
        return f"{amounts[0].episodes} episodes of each policy"
    return ", ".join(str(amount.steps) for amount in amounts) + " steps"


def _returns_in_words(returns: Sequence[float]) -> str:
    low, mean, high = min(returns), np.mean(returns), max(returns)
    return f"{len(returns):,} episodes, mean return {mean:.4g} ({low:.4g} to {high:.4g})"


def check_dataset_id(dataset_id: str) -> None:
    """Raises `InvalidInput` unless Minari can name a data set so."""
    for package in ("minari", "h5py"):
        optional_package(package, "a recording")
    if not is_minari_id(dataset_id):
        raise InvalidInput(
            "dataset must be NAMESPACE/NAME-vN of letters, digits, - and _; "
            f"received {dataset_id!r}"
        )


def _name(env: gymnasium.Env) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def _described(env: gymnasium.Env) -> str:
    """Its name, and what is otherwise than where it is registered, such as its time limit."""
    if env.spec is None or env.spec.id not in gymnasium.registry:
        return _name(env)
    registered = gymnasium.spec(env.spec.id)
    own, usual = (
        {
            name: repr(value)
            for name, value in {**spec.kwargs, "max_episode_steps": spec.max_episode_steps}.items()
        }
        for spec in (env.spec, registered)
    )
    changed = ", ".join(
        f"{name}={value}"
        for name, value in sorted(own.items())
        # Pictures change no play, and addresses are others every time.
        if value != usual.get(name) and name != "render_mode" and " at 0x" not in value
    )
    return f"{_name(env)} with {changed}" if changed else _name(env)


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


def _recordable(env: gymnasium.Env) -> gymnasium.Env:
    """The environment, with a spec that Minari can write down.

    Raises:
        InvalidInput: if its class has no name to import it by, or `load_episodes` could not read
            its play.
    """
    spec = env.unwrapped.spec
    if spec and callable(spec.entry_point):
        # Before a wrapper is asked for its spec, which it keeps from then on.
        address = _address(spec.entry_point)
        env.unwrapped.spec = dataclasses.replace(spec, entry_point=address or spec.entry_point)
    if env.spec and callable(env.spec.entry_point):
        raise InvalidInput(
            f"{_name(env)} must be registered by a string such as 'my_worlds:MyWorld', so that "
            f"others can make it again; received the entry point {env.spec.entry_point}"
        )
    observations, actions = env.observation_space, env.action_space
    if observations.shape is None or 0 in observations.shape:
        raise InvalidInput(
            f"{_name(env)} must have arrays for observations, through a wrapper such as "
            f"gymnasium.wrappers.FlattenObservation; received {observations}"
        )
    _check_action_space(_name(env), actions)
    if isinstance(actions, Box) and actions.dtype.kind != "f":
        raise InvalidInput(f"{_name(env)}: vectors of actions must be floats; received {actions}")
    return env


def _address(function: Callable) -> str | None:
    """Where others import a class or a function from, if they can."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    its_own = getattr(sys.modules.get(module), name, None) is function
    return f"{module}:{name}" if its_own and module != "__main__" else None


def _tried(player: Player, env: gymnasium.Env) -> Policy | None:
    """The player's policy, if its first action is one of the environment's."""
    policy = player.make() if player.make else None
    observation, _ = env.reset(seed=0)
    explore, rng = EXPLORATIONS[player.noise], np.random.default_rng(0)
    action = explore(policy, env.action_space, rng, 0.0)(observation)
    _check_action(player, env, action)
    return policy


def _check_action(player: Player, env: gymnasium.Env, action: Any) -> None:
    if not env.action_space.contains(action):
        raise InvalidInput(
            f"{player.name} must choose actions of {env.action_space}; received {action!r}"
        )


def _check_numbers(env: gymnasium.Env, observation: Any, reward: Any = 0.0) -> None:
    """Raises `InvalidInput` for numbers that `load_episodes` would refuse."""
    finite(f"observations of {_name(env)}", np.asarray(observation))
    finite(f"rewards of {_name(env)}", np.asarray(reward))


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
    parts: Sequence[tuple[Player, Policy | None, _Amount]],
    seed: int,
    details: dict[str, str],
) -> list[list[float]]:
    """Plays all parts, writes the data set and returns every player's returns."""
    import minari

    rng = np.random.default_rng(seed)
    unit = "episode" if parts[0][2].episodes else "step"
    total = sum(max(amount) for _, _, amount in parts)
    # Pixels as they were seen: by default, Minari would compress them with a loss.
    with (
        contextlib.closing(
            minari.DataCollector(_recordable(make_env()), jpeg_encoding=False)
        ) as env,
        tqdm(total=total, unit=unit, mininterval=0.5) as bar,
    ):
        returns = [
            _play_part(env, player, policy, amount, rng, bar) for player, policy, amount in parts
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nobody signed the data, and the like
            env.create_dataset(dataset_id=dataset_id, **details)
    return returns


def _play_part(
    env: gymnasium.Env,
    player: Player,
    policy: Policy | None,
    amount: _Amount,
    rng: np.random.Generator,
    bar: tqdm,
) -> list[float]:
    """Plays what is one player's part and returns the returns."""
    returns: list[float] = []
    steps = 0
    while len(returns) < amount.episodes or steps < amount.steps:
        total, length = _play(env, player, policy, rng)
        returns.append(total)
        steps += length
        bar.update(1 if amount.episodes else length)
    return returns


def _play(
    env: gymnasium.Env, player: Player, policy: Policy | None, rng: np.random.Generator
) -> tuple[float, int]:
    """Plays one episode and returns its return and length."""
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    _check_numbers(env, observation)
    act = EXPLORATIONS[player.noise](policy, env.action_space, rng, player.level)
    total, length, over = 0.0, 0, False
    while not over:
        action = act(observation)
        _check_action(player, env, action)
        observation, reward, terminated, truncated, _ = env.step(action)
        _check_numbers(env, observation, reward)
        total, length, over = total + float(reward), length + 1, terminated or truncated
    return total, length


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
