"""Play episodes with a policy that needs more than the newest observation.

The server is stateless. A session therefore keeps the memory of a recurrent policy
(`MemorySession`) or the window of past steps of a Decision Transformer (`WindowSession`) in the
client, and sends it with every observation.

Both classes have the same methods, for one environment or for a vector of environments:

>>> from rrl_tf import load_policy
>>> from rrl_tf.envs import SeededVectorEnv, doorkey_task
>>> session = WindowSession(load_policy("dt-doorkey"), target_return=0.95, num_envs=8)
>>> envs = SeededVectorEnv(doorkey_task().make_env, num_envs=8, seed=0)
>>> observations, _ = envs.reset()
>>> rewards, new = np.zeros(8), np.zeros(8, bool)
>>> for _ in range(30):
...     session.reset(new)  # `new` marks the environments in which an episode begins
...     actions = session.act(observations, rewards)
...     observations, rewards, terminated, truncated, _ = envs.step(actions)
...     new = terminated | truncated  # with AutoresetMode.SAME_STEP
>>> actions.shape
(8,)

With Gymnasium's AutoresetMode.NEXT_STEP, the first observation of an episode arrives one step
later. In that case, `new` marks the environments whose episode had already ended before the step.

Instead of a client, a session accepts a policy in this process, from `rrl_tf.export.load_policy`.

If the server loads a new version during an episode, the next step runs on the new version. A
recurrent double DQN then rejects the memory of the old version, while any other policy accepts it.
To play a whole episode on one version, pass its number as `version` to `connect`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rrl_tf._arguments import array_of, finite, optional_positive_int
from rrl_tf._observations import observation_parts
from rrl_tf.errors import InvalidInput
from serving.client.arrays import split_outputs

__all__ = ["MemorySession", "WindowSession"]


class _Session:
    """The base class of both sessions: checks the policy's inputs and batches the observations."""

    def __init__(self, client, num_envs, required):
        self._client = client
        self._single = num_envs is None
        self._size = optional_positive_int("num_envs", num_envs) or 1
        self._inputs = client.signatures.get("act", {}).get("inputs", {})
        if not required <= self._inputs.keys():
            raise InvalidInput(
                f"{type(self).__name__} needs a policy whose signature 'act' has the inputs "
                f"{sorted(required)}; received a policy with the signatures "
                f"{sorted(client.signatures)} and the inputs {sorted(self._inputs)}."
            )

    def _as_batch(self, name, observation, dtype, shape):
        """Return the observations as a batch (B, ...), after a check of their shape.

        Without the check, NumPy would broadcast an observation of a wrong shape.
        """
        observation = array_of(name, observation, dtype)
        if self._single:
            observation = observation[np.newaxis]
        sizes = np.array([self._size, *shape])  # -1 stands for any size
        if observation.ndim != len(sizes) or np.any((sizes >= 0) & (sizes != observation.shape)):
            raise InvalidInput(
                f"`{name}` must have the shape {list(shape)} in each of "
                f"{self._size} environments; "
                f"received the shape {list(observation.shape[self._single :])}."
            )
        return finite(name, observation) if dtype.kind == "f" else observation

    def _each(self, name, value):
        """Return a number for each environment as (B,); raise unless it is finite in float32."""
        return finite(name, np.broadcast_to(array_of(name, value, float), (self._size,)))

    def _predict(self, timeout):
        """Return the client's `predict`, with `timeout` as the limit of all its calls together."""
        if timeout is None:
            return self._client.predict
        deadline = time.monotonic() + timeout
        return lambda inputs, signature: self._client.predict(
            inputs, signature, timeout=deadline - time.monotonic()
        )


class MemorySession(_Session):
    """Play episodes with a recurrent policy, whose memory is passed from step to step.

    The memory also contains the last action, which the served graph reads. In the first step of an
    episode, the graph ignores the reward.

    Args:
        client: A client from `connect`, or a policy from `load_policy`.
        num_envs: B, the number of environments; `None` for a single environment, whose observations
            have no batch dimension.

    Raises:
        InvalidInput: If the policy has no memory.
        ServingError: If the server does not reply.

    Example:

    >>> from rrl_tf import load_policy
    >>> from rrl_tf.envs import memory_task
    >>> session, env = MemorySession(load_policy("memory-s17")), memory_task(17).make_env()
    >>> observation, _ = env.reset(seed=0)
    >>> reward, done = 0.0, False
    >>> while not done:
    ...     action = session.act(observation, reward)
    ...     observation, reward, terminated, truncated, _ = env.step(action)
    ...     done = terminated or truncated
    >>> reward
    1.0
    """

    def __init__(self, client: Any, num_envs: int | None = None) -> None:
        super().__init__(client, num_envs, {"memory"})
        self._parts = {
            name: (dtype, shape)
            for name, (dtype, (_, *shape)) in self._inputs.items()
            if name not in ("memory", "reward")
        }
        self._memory: Any = None

    def reset(self, rows: Any = None) -> None:
        """Begin new episodes in every environment, or in some of them (a mask, or indices)."""
        mask = np.zeros(self._size, bool)
        mask[slice(None) if rows is None else rows] = True
        if mask.all():
            # The next step requests the initial memory, which may be that of a newer version.
            self._memory = None
        elif mask.any() and self._memory is not None:
            initial = self._initial_memory(self._client.predict)
            mask = mask.reshape(-1, *[1] * (initial.ndim - 1))
            self._memory = np.where(mask, initial, self._memory)

    def _initial_memory(self, predict):
        return predict({"batch_size": np.array(self._size, np.int32)}, "initial_memory")["memory"]

    def act(
        self,
        observation: Any,
        reward: Any = 0.0,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Return the greedy action (an int, or an array (B,)) and keep the next memory.

        If the call fails, the memory is unchanged, so the step can be repeated.

        Args:
            observation: An observation of the environment, or a batch (B, ...) of observations; a
                dict or tuple of these if the environment observes a `Dict` or `Tuple`.
            reward: The reward of the last action: one number for all environments, or (B,).
            return_attention_scores: Whether to return (action, dict of scores) instead.
            timeout: Seconds that the call may take; `None` for the client's timeout.

        Raises:
            ServingError: If the server does not reply. The code is INVALID_ARGUMENT if the memory
                is from another policy or version, for example after a hot swap.
            InvalidInput: If the observation has a wrong shape, or a value is not finite. A policy
                in this process also raises it for a memory from another policy or version.
        """
        parts = observation_parts(observation, self._parts)
        inputs = {
            name: self._as_batch(name, parts[name], *spec) for name, spec in self._parts.items()
        }
        if "reward" in self._inputs:
            inputs["reward"] = self._each("reward", reward).astype(np.float32)
        predict = self._predict(timeout)
        if self._memory is None:
            self._memory = self._initial_memory(predict)
        inputs["memory"] = self._memory
        outputs = predict(inputs, _signature(return_attention_scores))
        self._memory = outputs["next_memory"]
        return split_outputs(outputs, self._single, return_attention_scores)

    @property
    def memory(self) -> np.ndarray | None:
        """The memory (B, ...), or None before the first step.

        To continue the episodes of another session, for example after a restart, set this attribute
        to the memory of that session.

        Raises:
            InvalidInput: If the new memory has a wrong shape, or a value is not finite.
        """
        return self._memory

    @memory.setter
    def memory(self, memory: Any) -> None:
        if memory is not None:
            memory = finite("memory", np.array(array_of("memory", memory, np.float32)))
            expected = [self._size, *self._inputs["memory"][1][1:]]
            if list(memory.shape) != expected:
                raise InvalidInput(
                    f"`memory` must have the shape {expected}, because the session has "
                    f"{self._size} environments; "
                    f"received the shape {list(memory.shape)}."
                )
        self._memory = memory


class WindowSession(_Session):
    """Play episodes with a Decision Transformer, whose input is a window of the last K steps.

    The newest step is the last one in the window. During the first K - 1 steps of an episode, the
    window is padded with zeros at the front; `mask` is 1 for the real steps. The action of the
    newest step is zero, because it is not known yet. States, actions and returns are raw values,
    which the served graph scales.

    Args:
        client: A client from `connect`, or a policy from `load_policy`.
        target_return: The return (sum of rewards) to aim at: one number for all environments, or
            one for each of them. `None` for the default of the policy, which is the best return in
            its training data. Received rewards are subtracted from the target return, unless the
            policy is conditioned on the return of the whole episode.
        num_envs: B, the number of environments; `None` for a single environment, whose observations
            have no batch dimension.

    Raises:
        InvalidInput: If the policy takes no windows, if `target_return` is `None` and the policy
            has no default, or if the target return is not finite.

    Example:

    >>> from rrl_tf import load_policy
    >>> from rrl_tf.envs import doorkey_task
    >>> session = WindowSession(load_policy("dt-doorkey"), target_return=0.95)
    >>> env = doorkey_task().make_env()
    >>> observation, _ = env.reset(seed=0)
    >>> action = session.act(observation)
    >>> observation, reward, terminated, truncated, _ = env.step(action)
    >>> session.act(observation, reward) in range(5)
    True
    """

    def __init__(self, client: Any, target_return: Any = None, num_envs: int | None = None) -> None:
        names = {"states", "actions", "returns_to_go", "timesteps", "mask"}
        super().__init__(client, num_envs, names)
        self._subtracts: Any = 1
        if "default_target" in client.signatures:
            inputs = {"batch_size": np.array(self._size, np.int32)}
            default = client.predict(inputs, "default_target")
            self._subtracts = default["subtracts_rewards"]
            if target_return is None:
                target_return = default["target_return"]
        if target_return is None:
            raise InvalidInput(
                "`target_return` must be a number, because the policy has no default; received "
                "None."
            )
        self._target = self._each("target_return", target_return)
        self._window = {
            name: np.zeros((self._size, *shape[1:]), dtype)
            for name, (dtype, shape) in self._inputs.items()
        }
        self._step = np.zeros(self._size, int)
        self._return = self._target.copy()

    def reset(self, rows: Any = None) -> None:
        """Begin new episodes in every environment, or in some of them (a mask, or indices)."""
        rows = slice(None) if rows is None else rows
        for values in self._window.values():
            values[rows] = 0
        self._step[rows] = 0
        self._return[rows] = self._target[rows]

    def act(
        self,
        observation: Any,
        reward: Any = 0.0,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Return the action, and append the step to the window.

        A discrete action is an int, or an array (B,) for several environments. A continuous action
        is an array (A,), or (B, A). If the call fails, the window is unchanged, so the step can be
        repeated.

        Args:
            observation: An observation of the environment, or a batch (B, ...) of observations.
            reward: The reward of the last action: one number for all environments, or (B,). It is
                ignored in the first step of an episode.
            return_attention_scores: Whether to return (action, dict of scores) instead.
            timeout: Seconds that the call may take; `None` for the client's timeout.

        Raises:
            ServingError: If the server does not reply.
            InvalidInput: If the observation has a wrong shape, or a value is not finite.
        """
        dtype, (_, _, *shape) = self._inputs["states"]
        states = self._as_batch("observation", observation, dtype, shape)
        rewards = self._subtracts * np.where(self._step > 0, self._each("reward", reward), 0.0)
        newest = {
            "states": states,
            "actions": 0,
            "returns_to_go": (self._return - rewards)[:, None],
            "timesteps": self._step,
            "mask": 1,
        }
        window = {}
        for name, values in self._window.items():
            window[name] = np.empty_like(values)  # several times as fast as np.roll
            window[name][:, :-1] = values[:, 1:]
            window[name][:, -1] = newest[name]
        outputs = self._predict(timeout)(window, _signature(return_attention_scores))
        action = outputs["action"]
        if action.ndim == 1:  # a discrete action, which the window contains as a one-hot vector
            action = np.eye(window["actions"].shape[-1])[action]
        window["actions"][:, -1] = action
        self._window = window
        self._return = self._return - rewards
        self._step = self._step + 1
        return split_outputs(outputs, self._single, return_attention_scores)


def _signature(return_attention_scores):
    return "act_with_attention" if return_attention_scores else "act"
