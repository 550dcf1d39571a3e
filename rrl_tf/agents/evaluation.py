"""Playing given starts to the end and counting what came of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from rrl_tf.errors import InvalidInput

_PLAYED_ON = 10_000
"""Steps at most, to see what an environment without a time limit tells in the end."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Outcome of one episode per start.

    Attributes:
        success: `(M,)` bool, the episode's goal was reached; `None` where the environment does not
            tell.
        length: `(M,)` int, environment steps taken.
        reward: `(M,)` float, undiscounted returns.
        loop: `(M,)` bool, a greedy policy came back to a state it had been in: as it and the
            environment are deterministic, it would have gone round until the time limit, so the
            episode was stopped there. `None` where the environment has no `state_key`, or the
            policy remembers: it may act otherwise where it comes back to.
    """

    success: np.ndarray | None
    length: np.ndarray
    reward: np.ndarray
    loop: np.ndarray | None

    def summary(self) -> dict[str, float]:
        """Means as a dict: return, length and, where they are known, success and loops.

        The length is that of the solved episodes, where it is known which they are.
        """
        means = {"return": float(self.reward.mean())}
        counted = self.length
        if self.success is not None:
            means["success"] = float(self.success.mean())
            counted = self.length[self.success]
        if self.loop is not None:
            means["loops"] = float(self.loop.mean())
        if len(counted):
            means["length"] = float(counted.mean())
        return means


def evaluate(
    act: Any,
    make_env: Callable[[], gymnasium.Env],
    resets: Sequence[Mapping[str, Any]],
    epsilon: float = 0.0,
    seed: int = 0,
) -> Evaluation:
    """Plays one episode per start, all of them side by side.

    Args:
        act: function of raw observations `(B, ...)` → actions `(B,)`; the policy. One that
            remembers is called with what it recalls as well and returns its memory, too, as
            `RecurrentDoubleDQN.greedy_player` does; of it no loops are counted.
        make_env: function without arguments → any Gymnasium environment with discrete actions. One
            that reports `info["success"]` has successes counted; one that has a `state_key()` (what
            its future depends on, hashable) has loops counted.
        resets: keyword arguments of `env.reset`, one an episode, such as
            `{"options": {"start": start}}` or `{"seed": 7}`.
        epsilon: float, share of random actions mixed in. Loops are only counted at 0.
        seed: int, of the random actions.

    Returns:
        An `Evaluation` of M = `len(resets)` episodes.

    Raises:
        InvalidInput: if there is nothing to play.

    Example:
        >>> import rrl_tf
        >>> task, policy = rrl_tf.envs.doorkey_task((5,)), rrl_tf.load_policy("doorkey-5x5")
        >>> found = evaluate(policy.act, task.make_test_env, task.evaluation_resets())
        >>> found.length.shape, found.summary()["success"]
        ((48,), 1.0)
    """
    if not resets:
        raise InvalidInput("evaluate needs at least one start; received none")
    player = _Player(act, len(resets))
    episodes = [_Episode(make_env(), reset) for reset in resets]
    rng = np.random.default_rng(seed)
    running = episodes
    while running:
        action = player.act(np.stack([episode.observation for episode in running]))
        if epsilon > 0:
            count = running[0].env.action_space.n
            explore = rng.random(len(running)) < epsilon
            action = np.where(explore, rng.integers(count, size=len(running)), action)
        for episode, choice in zip(running, action):
            episode.step(int(choice), watch_for_loops=epsilon == 0 and not player.remembers)
        player.look_back(action, running)
        running = [episode for episode in running if not episode.over]
    success = _successes(episodes, rng)
    for episode in episodes:
        episode.env.close()
    return Evaluation(
        success=success,
        length=np.array([episode.length for episode in episodes]),
        reward=np.array([episode.reward for episode in episodes]),
        loop=None if player.remembers else _where_known([each.loop for each in episodes]),
    )


class _Player:
    """A policy, and what it recalls of the episodes that still run."""

    def __init__(self, act, count):
        self._act = act
        self.remembers = hasattr(act, "initial_recall")
        self._recall = act.initial_recall(count) if self.remembers else None
        self._memory = None

    def act(self, observation):
        if not self.remembers:
            return np.asarray(self._act(observation))
        action, self._memory = self._act(observation, self._recall)
        return action

    def look_back(self, action, episodes):
        if not self.remembers:
            return
        reward, over = (
            np.array([getattr(episode, name) for episode in episodes])
            for name in ("last_reward", "over")
        )
        recall = self._act.next_recall(self._recall, self._memory, action, reward, over)
        self._recall = {name: value[~over] for name, value in recall.items()}


def _successes(episodes, rng):
    """Bools `(M,)`, or `None` where the environment does not tell of success.

    It tells at an episode's end, which none may have come to: then one that was stopped in a loop
    is played on by chance.
    """
    told = [episode.success for episode in episodes]
    looped = next((episode for episode in episodes if episode.loop), None)
    if looped is not None and all(success is None for success in told):
        told[0] = looped.tells_of_success(rng)
    return _where_known(told)


def _where_known(values):
    """Bools `(M,)`, or `None` if nobody knew; who does not tell did not succeed."""
    if all(value is None for value in values):
        return None
    return np.array([bool(value) for value in values])


class _Episode:
    def __init__(self, env, reset):
        self.env = env
        self.observation, _ = env.reset(**reset)
        self.length, self.reward, self.last_reward = 0, 0.0, 0.0
        self.over = False
        self.success = None
        self._key = env.get_wrapper_attr("state_key") if env.has_wrapper_attr("state_key") else None
        self.loop = None if self._key is None else False
        self._seen = set() if self._key is None else {self._key()}

    def step(self, action, watch_for_loops):
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self.length += 1
        self.last_reward = float(reward)
        self.reward += self.last_reward
        self.over = terminated or truncated
        if self.over:
            self.success = info.get("success")
        elif self._key is not None and watch_for_loops:
            key = self._key()
            self.loop = self.over = key in self._seen
            self._seen.add(key)

    def tells_of_success(self, rng):
        """`False`, as it did not succeed, if the environment tells so much, else `None`."""
        for _ in range(_PLAYED_ON):
            *_, terminated, truncated, info = self.env.step(
                int(rng.integers(self.env.action_space.n))
            )
            if terminated or truncated:
                return False if "success" in info else None
        return None
