"""Evaluate policies on fixed start states, greedily and with a small fraction of random actions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import tensorflow as tf

from rrl_tf.agents import random
from rrl_tf.envs.checks import ArrayCheck, CheckedEnv
from rrl_tf.envs.graph import GraphEnv
from rrl_tf.envs.packing import PackObservation, as_box
from rrl_tf.envs.task import Task
from rrl_tf.errors import InvalidInput

Play: TypeAlias = "Callable[[int, float], Evaluation]"
"""Function of a level and epsilon that plays an episode from each of the level's start states."""

NOISE = 0.05
"""Probability of a random action in the noisy evaluation. Random actions end loops, in which a
greedy policy in a deterministic environment would stay until the time limit."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation that plays one episode from each of M start states.

    Attributes:
        success: `(M,)` bool, whether the episode reached its goal; `None` if the environment does
            not report success.
        length: `(M,)` int, number of environment steps.
        returns: `(M,)` float, undiscounted returns.
        loop: `(M,)` bool, whether a greedy policy returned to an earlier state. Since policy and
            environment are deterministic, it would repeat its actions until the time limit, so the
            episode is stopped. `None` if the environment has no `state_key`, or if the policy is
            recurrent and may act differently the second time.
    """

    success: np.ndarray | None
    length: np.ndarray
    returns: np.ndarray
    loop: np.ndarray | None

    def summary(self) -> dict[str, float]:
        """Return a dict with the means of `return`, `episode_length`, `success` and `loops`.

        `success` and `loops` are left out if they are unknown. If an episode succeeded, the dict
        also contains `solved_length`, the mean length of the successful episodes.
        """
        means = {"return": self.returns.mean(), "episode_length": self.length.mean()}
        if self.success is not None:
            means["success"] = self.success.mean()
            if self.success.any():
                means["solved_length"] = self.length[self.success].mean()
        if self.loop is not None:
            means["loops"] = self.loop.mean()
        return {name: float(mean) for name, mean in means.items()}


def evaluate(
    act: Any,
    make_env: Callable[[], gymnasium.Env],
    resets: Sequence[Mapping[str, Any]],
    epsilon: float = 0.0,
    seed: int = 0,
) -> Evaluation:
    """Play M episodes in parallel, one for each element of `resets`.

    Args:
        act: the policy, a function from raw observations `(B, ...)` to actions `(B, ...)`. A
            recurrent policy is an object with the methods of `GreedyRecurrentPolicy`. Observations
            with several parts are passed as a dict; see `rrl_tf.envs.packing`.
        make_env: function without arguments that returns a Gymnasium environment with `Discrete`,
            `MultiDiscrete` or `MultiBinary` actions. Successes are counted if the `info` of the
            last step contains `"success"`. Loops are detected, and count as failures, if the
            environment has a method `state_key()`, which returns a hashable value that identifies
            its state.
        resets: keyword arguments of `env.reset`, one dict per episode, such as
            `{"options": {"start": start}}` or `{"seed": 7}`.
        epsilon: probability of a random action. Loops are only detected if it is 0.
        seed: seed of the random actions.

    Returns:
        An `Evaluation` of M = `len(resets)` episodes.

    Raises:
        InvalidInput: if `resets` is empty, if an action is not an integer, or if an environment
            returns a value that is not finite, or whose shape or dtype is not the declared one.

    Example:
        >>> import rrl_tf
        >>> task, policy = rrl_tf.envs.doorkey_task((5,)), rrl_tf.load_policy("doorkey-5x5")
        >>> found = evaluate(policy.act, task.make_test_env, task.evaluation_resets())
        >>> found.length.shape, found.summary()["success"]
        ((48,), 1.0)
    """
    if not resets:
        raise InvalidInput("`resets` must contain at least one element; received none.")
    episodes = [_Episode(make_env(), reset) for reset in resets]
    recurrent = hasattr(act, "initial_state")
    _play_to_the_end(episodes, act, recurrent, epsilon, np.random.default_rng(seed))
    for episode in episodes:
        episode.env.close()
    return Evaluation(
        success=_where_known([episode.success for episode in episodes]),
        length=np.array([episode.length for episode in episodes]),
        returns=np.array([episode.returned for episode in episodes]),
        loop=None if recurrent else _where_known([episode.loop for episode in episodes]),
    )


def _play_to_the_end(episodes, act, recurrent, epsilon, rng):
    state = act.initial_state(len(episodes)) if recurrent else None
    packing, space = episodes[0].packing, episodes[0].env.action_space
    actions = as_box("action", space)
    check = ArrayCheck("the action", actions.shape, np.int64)
    running = episodes
    while running:
        observation = np.stack([episode.observation for episode in running])
        if packing is not None:
            parts = packing.unpack(observation)
            observation = {name: np.asarray(part) for name, part in parts.items()}
        action, memory = act(observation, state) if recurrent else (act(observation), None)
        action = check.batch(action, len(running), "episode {} of those that run".format)
        if epsilon > 0:
            explore = rng.random(len(running)) < epsilon
            drawn = rng.integers(actions.low, actions.high + 1, size=action.shape)
            action = np.where(explore.reshape(-1, *[1] * (action.ndim - 1)), drawn, action)
        for episode, choice in zip(running, action):
            episode.step(
                choice if actions.shape else int(choice),
                stop_at_loop=epsilon == 0 and not recurrent,
            )
        if recurrent:
            reward = np.array([episode.last_reward for episode in running], np.float32)
            done = np.array([episode.done for episode in running])
            state = act.next_state(memory, action, reward, done)
            state = {name: value[~done] for name, value in state.items()}
        running = [episode for episode in running if not episode.done]


def _where_known(values):
    """Return bools `(M,)`, with False for unknown values; return `None` if all are unknown."""
    if all(value is None for value in values):
        return None
    return np.array([bool(value) for value in values])


class _Episode:
    def __init__(self, env, reset):
        self.packing = None
        if env.observation_space.shape is None:  # a `Dict` or `Tuple`
            env = PackObservation(env)
            self.packing = env.packing
        self.env = CheckedEnv(env)
        self.observation, _ = self.env.reset(**reset)
        self.length, self.returned, self.last_reward = 0, 0.0, 0.0
        self.done = False
        self.success = None
        self._key = env.get_wrapper_attr("state_key") if env.has_wrapper_attr("state_key") else None
        self.loop = None if self._key is None else False
        self._visited = set() if self._key is None else {self._key()}

    def step(self, action, stop_at_loop):
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self.length += 1
        self.last_reward = reward
        self.returned += reward
        self.done = terminated or truncated
        if self.done:
            self.success = info.get("success")
        elif self._key is not None and stop_at_loop:
            key = self._key()
            self.loop = self.done = key in self._visited
            self._visited.add(key)
            if self.loop:
                self.success = False


class GraphEvaluation:
    """Evaluates a policy inside the TensorFlow graph, with the same results as `evaluate`.

    With random actions the results differ, because a different generator draws the actions.

    Args:
        agent: `DoubleDQN` or `RecurrentDoubleDQN` whose policy is evaluated.
        env: `GraphEnv`, such as a `DoorKeyGraph`.
        starts: start states that `env.state_of` accepts, one per episode.

    Raises:
        InvalidInput: if `starts` is empty or contains an invalid start state.

    Example:
        >>> import keras
        >>> from rrl_tf.agents import DoubleDQN
        >>> from rrl_tf.envs import DoorKeyGraph, doorkey_task, enumerate_starts
        >>> task = doorkey_task((5,))
        >>> layers = [keras.layers.Flatten(), keras.layers.Dense(task.num_actions)]
        >>> network = keras.Sequential(layers)
        >>> network.build((None, *task.preprocessor.shape))
        >>> agent = DoubleDQN(network, task.preprocessor)
        >>> play = GraphEvaluation(agent, DoorKeyGraph(5), enumerate_starts(5))
        >>> play().length.shape, play(epsilon=0.05).length.shape
        ((48,), (48,))
    """

    def __init__(self, agent: Any, env: GraphEnv, starts: Sequence[Any]) -> None:
        self.agent = agent
        self.recurrent = bool(agent.initial_state(1))
        self.env = env
        self._start = env.state_of(starts)
        self._count = len(starts)
        self._limit = env.time_limit
        self._step = tf.function(self._one_step, jit_compile=agent.jit_compile, autograph=False)
        self._play = tf.function(self._to_the_end)

    def __call__(self, epsilon: float = 0.0, seed: int = 0) -> Evaluation:
        """Play one episode from each start state, and return the results.

        Args:
            epsilon: probability of a random action. Loops are only detected if it is 0.
            seed: seed of the random actions.
        """
        outcome = self._play(tf.constant(epsilon), tf.constant((seed, 0), tf.int64))
        success, length, returned, loop = (each.numpy() for each in outcome)
        return Evaluation(
            success, length, returned.astype(np.float64), None if self.recurrent else loop
        )

    def _to_the_end(self, epsilon, seed):
        env_state = self._start
        observation, key = self.env.observe(env_state), self.env.state_key(env_state)
        no = tf.zeros((self._count,), tf.bool)
        done, success, loop = no, no, no
        length, returned = tf.zeros((self._count,), tf.int32), tf.zeros((self._count,))
        # Row t contains the state keys after t steps. The fill value -1 is not a valid key.
        visited = tf.fill((self._limit + 1, self._count), tf.constant(-1, tf.int64))
        state = self.agent.initial_state(self._count, self.agent.policy)
        steps = 0
        while steps < self._limit and not tf.reduce_all(done):
            visited = tf.tensor_scatter_nd_update(visited, [[steps]], key[None])
            steps += 1
            action, memory = self._act(observation, state, done, epsilon, seed, steps)
            env_state, observation, key, reward_t, terminated, truncated = self._step(
                env_state, action
            )
            state = self.agent.next_state(memory, action, reward_t, done)
            length += tf.cast(~done, tf.int32)
            returned += tf.where(done, 0.0, reward_t)
            success |= self.env.succeeded(reward_t, terminated) & ~done
            done |= terminated | truncated
            if not self.recurrent:
                repeats = tf.reduce_any(visited[:steps] == key, axis=0) & (epsilon == 0) & ~done
                loop |= repeats
                done |= repeats
        return success, length, returned, loop

    @tf.autograph.experimental.do_not_convert
    def _act(self, observation, state, done, epsilon, seed, steps):
        """Return actions and memories of all episodes, with zeros for episodes that are done."""
        running = tf.where(~done)
        observation, state = tf.nest.map_structure(
            lambda x: tf.gather(x, running[:, 0]), (observation, state)
        )
        values, memory = self.agent.policy_values(observation, state)
        seed = random.fold_in(seed, steps)
        action = random.epsilon_greedy(values, epsilon, seed)
        # Scatter actions and memories together, because `memory` may have a size of 0.
        both = tf.concat([tf.cast(action, memory.dtype)[:, None], memory], axis=-1)
        shape = tf.constant((done.shape[0], both.shape[1]), running.dtype)
        everyone = tf.scatter_nd(running, both, shape)
        return tf.cast(everyone[:, 0], tf.int32), everyone[:, 1:]

    def _one_step(self, env_state, action):
        env_state, observation, *outcome = self.env.step(env_state, action)
        return env_state, observation, self.env.state_key(env_state), *outcome


def make_play(agent: Any, task: Task, episodes: int, in_graph: bool = False) -> Play:
    """Return a function that evaluates an agent's policy on a task.

    Args:
        agent: `DoubleDQN` or `RecurrentDoubleDQN`.
        task: task to evaluate on.
        episodes: maximum number of evaluation episodes per level.
        in_graph: use the task's environments in the TensorFlow graph, which are faster. The
            evaluation environments need the attribute `start`; see `Task`.
    """

    def resets(level):
        return task.evaluation_resets(level, episodes)

    if not in_graph:
        policy = agent.greedy_policy()

        def play(level: int, epsilon: float) -> Evaluation:
            make = functools.partial(task.make_test_env, level)
            return evaluate(policy, make, resets(level), epsilon)

        return play

    @functools.cache
    def graph(level):
        env = task.make_test_env(level)
        starts = []
        for reset in resets(level):
            env.reset(**reset)
            starts.append(env.get_wrapper_attr("start"))
        make = task.levels[level].make_test_graph or task.levels[level].make_graph
        return GraphEvaluation(agent, make(), starts)

    return lambda level, epsilon: graph(level)(epsilon)


def evaluate_level(play: Play, level: int, levels: int) -> dict[str, float]:
    """Evaluate a level greedily and with random actions, and return the metrics.

    Args:
        play: function from `make_play`.
        level: number of the level to play, from 0.
        levels: number of levels of the task.
    """
    greedy, noisy = (play(level, epsilon).summary() for epsilon in (0.0, NOISE))
    measure = "return"
    if "success" in {*greedy, *noisy} or levels > 1:
        measure = "success"
        greedy.setdefault(measure, 0.0)
        noisy.setdefault(measure, 0.0)
    return {
        **{f"eval/{name}": value for name, value in greedy.items()},
        f"eval/{measure}_epsilon_{NOISE}": noisy[measure],
        "eval/level": level + 1,
    }


def zero_shot_scores(play: Play, level: int, levels: int) -> dict[str, float]:
    """Evaluate a level before the agent has trained on it; return metrics under `zero_shot/`.

    `zero_shot/last_success` is the greedy success on the last level.

    Args:
        play: function from `make_play`.
        level: number of the level that training is about to begin, from 0.
        levels: number of levels of the task.
    """
    last = evaluate_level(play, levels - 1, levels)
    current = last if level == levels - 1 else evaluate_level(play, level, levels)
    kept = ("success", f"success_epsilon_{NOISE}", "level")
    return {
        **{f"zero_shot/{name}": current[f"eval/{name}"] for name in kept},
        "zero_shot/last_success": last["eval/success"],
    }


def format_summary(scores: Mapping[str, float], episodes: int, levels: int) -> str:
    """Format the scores on the last level as one line.

    Example:
        >>> found = {"eval/return": 1.0, "eval/success": 1.0, "eval/success_epsilon_0.05": 0.98}
        >>> format_summary(found, episodes=48, levels=1)
        'greedy: 48/48 solved, mean return 1.00; with 5 % random actions: 98.0 % solved'
    """
    level = f" (level {levels} of {levels})" if levels > 1 else ""
    returned = f"mean return {scores['eval/return']:.2f}"
    if "eval/success" not in scores:
        noisy = f"mean return {scores[f'eval/return_epsilon_{NOISE}']:.2f}"
        return f"greedy{level}: {returned} in {episodes} episodes; with 5 % random actions: {noisy}"
    solved = f"{round(scores['eval/success'] * episodes)}/{episodes} solved"
    loops = f", {scores['eval/loops'] * episodes:.0f} loops" if "eval/loops" in scores else ""
    noisy = f"{scores[f'eval/success_epsilon_{NOISE}']:.1%}".replace("%", " %")
    return f"greedy{level}: {solved}, {returned}{loops}; with 5 % random actions: {noisy} solved"


def first_perfect_step(rows: Sequence[Mapping[str, float]], levels: int) -> int | None:
    """Return the first step at which every start of the last level was solved, or `None`."""
    for row in rows:
        if row.get("eval/success") == 1 and row["eval/level"] == levels:
            return int(row["step"])
    return None


def is_solved(rows: Sequence[Mapping[str, float]], levels: int, evaluations: int) -> bool:
    """Return whether the last `evaluations` evaluations solved every start of the last level."""
    last = [row for row in rows if "eval/success" in row][-evaluations:]
    return 0 < evaluations <= len(last) and all(
        row["eval/success"] == 1 and row["eval/level"] == levels for row in last
    )
