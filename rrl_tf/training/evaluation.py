"""Playing given starts to the end and counting what came of them."""

import dataclasses

import numpy as np

from rrl_tf.errors import InvalidInput


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Outcome of one episode per start.

    Attributes:
        success: `(M,)` bool, the episode's goal was reached.
        length: `(M,)` int, environment steps taken.
        reward: `(M,)` float, undiscounted returns.
        loop: `(M,)` bool, a greedy policy came back to a state it had been in: as it and the
            environment are deterministic, it would have gone round until the time limit, so the
            episode was stopped there.
    """

    success: np.ndarray
    length: np.ndarray
    reward: np.ndarray
    loop: np.ndarray

    def summary(self):
        """Means as a dict: success, loops, return and, if any was solved, their mean length."""
        means = {
            "success": float(self.success.mean()),
            "loops": float(self.loop.mean()),
            "return": float(self.reward.mean()),
        }
        if self.success.any():
            means["length"] = float(self.length[self.success].mean())
        return means


def evaluate(act, make_env, resets, epsilon=0.0, seed=0):
    """Plays one episode per start, all of them side by side.

    Args:
        act: function of raw observations `(B, ...)` → actions `(B,)`; the policy.
        make_env: function without arguments → a Gymnasium environment that has a `state_key`
            (what its future depends on, hashable) and reports `info["success"]` at the end.
        resets: list of keyword arguments of `env.reset`, one an episode, such as
            `{"options": {"start": start}}` or `{"seed": 7}`.
        epsilon: float, share of random actions mixed in. Loops are only counted at 0.
        seed: int, of the random actions.

    Returns:
        An `Evaluation` of M = `len(resets)` episodes.

    Raises:
        ValueError: if there is nothing to play.

    Example:
        >>> starts = [{"options": {"start": start}} for start in enumerate_starts(5)]
        >>> evaluate(lambda o: agent.q_values(o).argmax(-1), make_doorkey, starts).summary()
    """
    if not resets:
        raise InvalidInput("evaluate needs at least one start, received none")
    episodes = [_Episode(make_env(), reset) for reset in resets]
    rng = np.random.default_rng(seed)
    running = episodes
    while running:
        action = np.asarray(act(np.stack([episode.observation for episode in running])))
        if epsilon > 0:
            count = running[0].env.action_space.n
            explore = rng.random(len(running)) < epsilon
            action = np.where(explore, rng.integers(count, size=len(running)), action)
        for episode, choice in zip(running, action):
            episode.step(int(choice), watch_for_loops=epsilon == 0)
        running = [episode for episode in running if not episode.over]
    return Evaluation(
        success=np.array([episode.success for episode in episodes]),
        length=np.array([episode.length for episode in episodes]),
        reward=np.array([episode.reward for episode in episodes]),
        loop=np.array([episode.loop for episode in episodes]),
    )


class _Episode:
    def __init__(self, env, reset):
        self.env = env
        self.observation, _ = env.reset(**reset)
        self.length, self.reward = 0, 0.0
        self.success = self.loop = self.over = False
        self._key = env.get_wrapper_attr("state_key")
        self._seen = {self._key()}

    def step(self, action, watch_for_loops):
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self.length += 1
        self.reward += float(reward)
        self.over = terminated or truncated
        self.success = self.over and bool(info["success"])
        if watch_for_loops and not self.over:
            key = self._key()
            self.loop = self.over = key in self._seen
            self._seen.add(key)
