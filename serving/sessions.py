"""Play episodes with a policy that needs more than the newest observation.

A session keeps the memory of a recurrent policy (`MemorySession`) or the window of past steps of a
Decision Transformer (`WindowSession`) in the client, and sends it with every observation. With
`state="server"`, the server keeps it, and a request contains only the observation and the reward.

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

import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rrl_tf._arguments import array_of, finite, optional_positive_int
from rrl_tf._observations import observation_parts
from rrl_tf.errors import InvalidInput
from serving import windows
from serving.client.arrays import split_outputs
from serving.errors import ServingError

__all__ = ["MemorySession", "WindowSession"]


class _Session:
    """The base class of both sessions: keeps the state and batches the observations.

    Attributes:
        _state: input name -> array, the state that the next request contains; None for a new
            episode, or while the server keeps the state.
        _sequence: The ID of the sequence in which the server keeps the state, or None.
    """

    #: Function of the client's `predict` that returns the state before the first step.
    _initial_state: Callable[[Any], dict[str, np.ndarray]]

    def __init__(self, client, num_envs, state, required):
        if state != "client" and not (state == "server" and hasattr(client, "transport")):
            raise InvalidInput(
                "`state` must be 'client', or 'server' for a client from `connect`; "
                f"received {state!r} and a {type(client).__name__}."
            )
        self._client, self._is_on_server = client, state == "server"
        self._state: dict[str, np.ndarray] | None = None
        self._sequence: str | None = None
        self._single = num_envs is None
        self._size = optional_positive_int("num_envs", num_envs) or 1
        self._inputs = client.signatures.get("act", {}).get("inputs", {})
        if not required <= self._inputs.keys():
            raise InvalidInput(
                f"{type(self).__name__} needs a policy whose signature 'act' has the inputs "
                f"{sorted(required)}; received a policy with the signatures "
                f"{sorted(client.signatures)} and the inputs {sorted(self._inputs)}."
            )

    def reset(self, rows: Any = None) -> None:
        """Begin new episodes in every environment, or in some of them (a mask, or indices)."""
        mask = np.zeros(self._size, bool)
        mask[slice(None) if rows is None else rows] = True
        if mask.all():
            # The next step gets a new state, perhaps of a newer version. A sequence that cannot be
            # ended now ends by its time-out.
            with contextlib.suppress(ServingError):
                self._take_state()
            self._state = self._sequence = None
        elif mask.any() and (state := self._take_state()) is not None:
            initial = self._initial_state(self._client.predict)
            self._state = {
                name: np.where(mask.reshape(-1, *[1] * (values.ndim - 1)), initial[name], values)
                for name, values in state.items()
            }

    def _take_state(self):
        """Return the state, after moving it from the server to this session; None for none."""
        if self._sequence is not None:
            self._state = self._in_sequence({}, "sequence_state", None, sequence_end=True)
            self._sequence = None
        return self._state

    def _step_on_server(self, inputs, signature, timeout):
        """Send a step; if the server keeps no state of this session, begin a sequence."""
        if self._sequence is not None:
            return self._in_sequence(inputs, signature, timeout)
        self._sequence = secrets.token_hex(8)
        try:
            inputs = {**inputs, **(self._state or {})}
            outputs = self._in_sequence(inputs, signature, timeout, sequence_start=True)
        except BaseException:
            self._sequence = None
            raise
        self._state = None
        return outputs

    def _in_sequence(self, inputs, signature, timeout, **parameters):
        parameters["sequence_id"] = self._sequence
        try:
            return self._client.predict(inputs, signature, timeout, sequence=parameters)
        except ServingError as error:
            if error.code == "NOT_FOUND":  # the sequence is lost; the next step begins a new one
                self._sequence = None
            raise

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
        state: "server" if the server should keep the memory in a sequence. This needs a client of
            `serving.server`. Otherwise "client".

    Raises:
        InvalidInput: If the policy has no memory, or cannot keep it on a server.
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

    def __init__(self, client: Any, num_envs: int | None = None, state: str = "client") -> None:
        super().__init__(client, num_envs, state, {"memory"})
        self._parts = {
            name: (dtype, shape)
            for name, (dtype, (_, *shape)) in self._inputs.items()
            if name not in ("memory", "reward")
        }

    def _initial_state(self, predict):
        return predict({"batch_size": np.array(self._size, np.int32)}, "initial_memory")

    def act(
        self,
        observation: Any,
        reward: Any = 0.0,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Return the greedy action (an int, or an array (B,)) and keep the next memory.

        If the call fails, the memory is unchanged, so the step can be repeated. There are two
        exceptions with `state="server"`: after NOT_FOUND, the memory is lost, and the next call
        begins an episode. After DEADLINE_EXCEEDED, the server may have taken the step.

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
        signature = _signature(return_attention_scores)
        if self._is_on_server:
            outputs = self._step_on_server(inputs, signature, timeout)
        else:
            predict = self._predict(timeout)
            if self._state is None:
                self._state = self._initial_state(predict)
            outputs = predict({**inputs, **self._state}, signature)
            self._state = {"memory": outputs["next_memory"]}
        return split_outputs(outputs, self._single, return_attention_scores)

    @property
    def memory(self) -> np.ndarray | None:
        """The memory (B, ...), or None before the first step.

        To continue the episodes of another session, for example after a restart, set this attribute
        to the memory of that session. With `state="server"`, reading this attribute moves the
        memory from the server to this session, and the next step sends it back.

        Raises:
            InvalidInput: If the new memory has a wrong shape, or a value is not finite.
        """
        state = self._take_state()
        return None if state is None else state["memory"]

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
        self.reset()
        self._state = None if memory is None else {"memory": memory}


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
        state: "server" if the server should keep the window, as for `MemorySession`.

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

    def __init__(
        self,
        client: Any,
        target_return: Any = None,
        num_envs: int | None = None,
        state: str = "client",
    ) -> None:
        super().__init__(client, num_envs, state, windows.INPUTS)
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

    def _initial_state(self, predict):
        return {
            name: np.zeros((self._size, *shape[1:]), dtype)
            for name, (dtype, shape) in self._inputs.items()
        }

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
        repeated; `MemorySession.act` documents the exceptions with `state="server"`.

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
        rewards, signature = self._each("reward", reward), _signature(return_attention_scores)
        if self._is_on_server:
            inputs = {"observation": states, "reward": rewards.astype(np.float32)}
            if self._sequence is None:
                inputs["target_return"] = self._target.astype(np.float32)
            outputs = self._step_on_server(inputs, signature, timeout)
        else:
            before = self._state or self._initial_state(self._client.predict)
            rewards = self._subtracts * rewards
            window = windows.append_step(before, states, rewards, self._target)
            outputs = self._predict(timeout)(window, signature)
            windows.set_action(window, outputs["action"])
            self._state = window
        return split_outputs(outputs, self._single, return_attention_scores)


def _signature(return_attention_scores):
    return "act_with_attention" if return_attention_scores else "act"
