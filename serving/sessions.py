"""Plays episodes with a policy that needs more than the newest observation.

A server forgets a request when it has answered it. What a policy remembers of an episode is kept
here, on the client's side, and sent along: the memory of a recurrent policy, or the last steps that
a Decision Transformer looks at.

Both kinds of session are called alike, for one environment or for a vector of them:

>>> from rrl_tf import load_policy
>>> from rrl_tf.envs import SeededVectorEnv, doorkey_task
>>> session = WindowSession(load_policy("dt-doorkey"), target_return=0.95, num_envs=8)
>>> envs = SeededVectorEnv(doorkey_task().make_env, num_envs=8, seed=0)
>>> observations, _ = envs.reset()
>>> rewards, new = np.zeros(8), np.zeros(8, bool)
>>> for _ in range(30):
...     session.reset(new)  # the rows whose observation begins an episode
...     actions = session.act(observations, rewards)
...     observations, rewards, terminated, truncated, _ = envs.step(actions)
...     new = terminated | truncated  # with AutoresetMode.SAME_STEP
>>> actions.shape
(8,)

In Gymnasium's other mode, NEXT_STEP, the observation after an episode's last comes one step later:
there, `new` are the rows that had ended before the step, not in it.

A policy loaded with `rrl_tf.export.load_policy` takes the place of the client. Of a client, connect
it to one version, if an episode must not end with a hot swap: another version of a recurrent
double DQN refuses the memory of this one, and any other policy goes on with it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rrl_tf._arguments import array_of, finite, optional_positive_int
from rrl_tf.errors import InvalidInput
from serving.client.client import split_attention

__all__ = ["MemorySession", "WindowSession"]


class _Session:
    """What both sessions share: how many environments, and whether there is a batch of them."""

    def __init__(self, client, num_envs):
        self._client = client
        self._single = num_envs is None
        self._size = optional_positive_int("num_envs", num_envs) or 1

    def _inputs_of(self, needed, optional=frozenset()):
        """Returns name -> (dtype, shape) of what `act` takes; raises unless it takes `needed`."""
        signatures = self._client.signatures
        if "act" not in signatures:
            raise InvalidInput(
                f"{type(self).__name__} is for policies with the signature 'act'; "
                f"received one with {sorted(signatures)}"
            )
        inputs = signatures["act"]["inputs"]
        if not needed <= inputs.keys() <= needed | optional:
            perhaps = f" and perhaps {sorted(optional)}" if optional else ""
            raise InvalidInput(
                f"{type(self).__name__} is for policies that take {sorted(needed)}{perhaps}; "
                f"received one that takes {sorted(inputs)}"
            )
        return inputs

    def _rows(self, rows):
        """Returns which rows to reset, as a mask."""
        if rows is None:
            return np.ones(self._size, bool)
        rows = np.atleast_1d(np.asarray(rows))
        rows = rows if rows.size else rows.astype(int)  # an empty list is one of floats to NumPy
        if rows.dtype == bool and rows.shape == (self._size,):
            return rows
        mask = np.zeros(self._size, bool)
        try:
            if rows.dtype == bool:
                raise IndexError
            mask[rows] = True
        except IndexError as error:
            raise InvalidInput(
                f"rows must be a mask of {self._size} or indices below it; received {rows}"
            ) from error
        return mask

    def _batch(self, value, dtype, shape):
        """Returns one observation, or one for each environment, as a batch."""
        value = array_of("observation", value, dtype)
        if self._single:
            value = value[np.newaxis]
        sizes = [self._size, *shape]
        free = [size < 0 for size in sizes]
        if value.ndim != len(sizes) or not np.all(free | np.equal(value.shape, sizes)):
            expected = ["?" if size < 0 else size for size in shape]
            raise InvalidInput(
                f"expected an observation of shape {expected} from {self._size} environments; "
                f"received the shape {list(value.shape[self._single :])}"
            )
        return finite("observation", value) if value.dtype.kind == "f" else value

    def _each(self, name, value):
        """Returns one number, or one for each environment, as (B,)."""
        numbers = array_of(name, value, float)
        if numbers.shape not in ((), (self._size,)):
            raise InvalidInput(
                f"expected a {name} or {self._size} of them; received the shape {numbers.shape}"
            )
        return np.broadcast_to(numbers, (self._size,))

    def _asker(self, timeout):
        """Returns the client's `predict`; all that is asked of it together has so many seconds."""
        if timeout is None:
            return self._client.predict
        deadline = time.monotonic() + timeout
        return lambda inputs, signature: self._client.predict(
            inputs, signature, timeout=deadline - time.monotonic()
        )

    def _answer(self, outputs, with_attention):
        if self._single:
            outputs = {name: array[0] for name, array in outputs.items()}
        action = outputs["action"]
        if self._single and np.ndim(action) == 0:
            action = int(action)
        return (action, split_attention(outputs)) if with_attention else action


class MemorySession(_Session):
    """Episodes of a recurrent policy, whose memory it keeps from step to step.

    Args:
        client: From `connect`, or a policy from `load_policy`.
        num_envs: B, the number of environments played side by side; by default a single one,
            without a batch dimension.

    Raises:
        InvalidInput: If the policy has no memory. As every failure of the server, a `ServingError`
            if it cannot be asked.

    Example:

    >>> from rrl_tf import load_policy
    >>> from rrl_tf.envs import memory_task
    >>> session, env = MemorySession(load_policy("memory-s17")), memory_task(17).make_env()
    >>> observation, _ = env.reset(seed=0)
    >>> reward, over = 0.0, False
    >>> while not over:
    ...     action = session.act(observation, reward)
    ...     observation, reward, terminated, truncated, _ = env.step(action)
    ...     over = terminated or truncated
    >>> reward
    1.0
    """

    def __init__(self, client: Any, num_envs: int | None = None) -> None:
        super().__init__(client, num_envs)
        inputs = self._inputs_of({"observation", "memory"}, {"reward"})
        self._looks_at_rewards = "reward" in inputs
        self._dtype, shape = inputs["observation"]
        self._shape = shape[1:]
        self._memory_shape = (self._size, *inputs["memory"][1][1:])
        self._memory: Any = None
        self._new = np.ones(self._size, bool)  # which rows begin an episode

    def reset(self, rows: Any = None) -> None:
        """Forgets: every environment's memory, or those of some rows (a mask, or indices)."""
        mask = self._rows(rows)
        if mask.all():
            self._memory = None  # asked for again at the next step, as a version may be new
        elif mask.any() and self._memory is not None:
            # A copy: the last answer's array may be someone else's, or not writable.
            self._memory = self._memory.copy()
            self._memory[mask] = self._initial(self._client.predict)[mask]
        self._new |= mask

    def _initial(self, ask):
        inputs = {"batch_size": np.array(self._size, np.int32)}
        return ask(inputs, "initial_memory")["memory"]

    def act(
        self,
        observation: Any,
        reward: Any = 0.0,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Returns the greedy action (an int, or an array (B,)) and remembers the step.

        Args:
            observation: As the environment gives it, or (B, ...) of them.
            reward: What the last action earned, a number or (B,), where the policy looks at it;
                not looked at in an episode's first step.
            return_attention_scores: Whether to return (action, dict of scores) instead.
            timeout: Seconds, instead of the client's.

        Raises:
            ServingError: If the server does not answer. The memory stays as it was, so the step may
                be asked again. INVALID_ARGUMENT, of a policy loaded in this process an
                InvalidInput, if the memory is of another policy or version, as after a hot swap:
                `reset`, and begin again.
            InvalidInput: If the observation is of another shape, or it or a reward that is looked
                at is not finite. The memory stays as it was.
        """
        inputs = {"observation": self._batch(observation, self._dtype, self._shape)}
        if self._looks_at_rewards:
            rewards = np.where(self._new, 0.0, self._each("reward", reward))
            inputs["reward"] = finite("reward", rewards).astype(np.float32)
        ask = self._asker(timeout)
        if self._memory is None:
            self._memory = self._initial(ask)
        inputs["memory"] = self._memory
        outputs = ask(inputs, _act(return_attention_scores))
        self._memory = outputs["next_memory"]
        self._new[:] = False
        return self._answer(outputs, return_attention_scores)

    @property
    def memory(self) -> np.ndarray | None:
        """What is remembered now, (B, ...), or None before the first step.

        Set it to go on with episodes of another session, such as one before a restart.

        Raises:
            InvalidInput: If it is set to a memory of another batch, of another policy's size, or
                one that holds NaN or infinity.
        """
        return self._memory

    @memory.setter
    def memory(self, memory: Any) -> None:
        memory = None if memory is None else np.array(array_of("memory", memory, np.float32))
        if memory is not None and memory.shape != self._memory_shape:
            raise InvalidInput(
                f"expected a memory of shape {list(self._memory_shape)} from this policy and "
                f"{self._size} environments; received the shape {list(memory.shape)}"
            )
        self._memory = memory if memory is None else finite("memory", memory)
        self._new[:] = memory is None


class WindowSession(_Session):
    """Episodes of a Decision Transformer, of whose last steps it keeps a window.

    The window holds the newest K steps, the newest last. Before an episode's K-th step it is
    padded in front with zeros, and `mask` is 1 where a step is. The newest step's action is not
    known yet and is zero. Values are raw: the served graph normalises.

    Args:
        client: From `connect`, or a policy from `load_policy`.
        target_return: Sum of rewards that the policy is asked for: a number, or one for each
            environment; by default the best of the policy's data. After each step, what it earned
            is subtracted, unless the policy looks at whole returns.
        num_envs: B, the number of environments played side by side; by default a single one,
            without a batch dimension.
        context_length: K; by default, what the policy's signature says.

    Raises:
        InvalidInput: If the policy takes no windows, K is not known, nothing is asked for and the
            policy has no default, or what is asked for is not finite.

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
        context_length: int | None = None,
    ) -> None:
        super().__init__(client, num_envs)
        context_length = optional_positive_int("context_length", context_length)
        names = {"states", "actions", "returns_to_go", "timesteps", "mask"}
        self._specs = self._inputs_of(names)
        known = self._specs["states"][1][1]
        if known > 0 and context_length not in (None, known):
            raise InvalidInput(f"context_length must be {known}; received {context_length}")
        length = known if known > 0 else context_length
        if length is None:
            raise InvalidInput(
                "the policy takes windows of any length: context_length must be a positive "
                "number of steps; received None"
            )
        default, self._subtracts = self._default_target()
        if target_return is None and default is None:
            raise InvalidInput("target_return must be given, as the policy has no default")
        self._target = default
        if target_return is not None:
            self._target = finite("target_return", self._each("target_return", target_return))
        self._window = {
            name: np.zeros((self._size, length, *shape[2:]), dtype)
            for name, (dtype, shape) in self._specs.items()
        }
        self._step: Any = None
        self._return: Any = None
        self.reset()

    def _default_target(self):
        """Returns what is asked for by default, and by which factor rewards are subtracted."""
        if "default_target" not in self._client.signatures:
            return None, 1
        inputs = {"batch_size": np.array(self._size, np.int32)}
        found = self._client.predict(inputs, "default_target")
        return np.asarray(found["target_return"], float), np.asarray(found["subtracts_rewards"])

    def reset(self, rows: Any = None) -> None:
        """Begins new episodes, in every environment or in some rows (a mask, or indices)."""
        mask = self._rows(rows)
        for values in self._window.values():
            values[mask] = 0
        if self._step is None:
            self._step, self._return = np.zeros(self._size, int), self._target.copy()
        self._step[mask] = 0
        self._return[mask] = self._target[mask]

    def act(
        self,
        observation: Any,
        reward: Any = 0.0,
        return_attention_scores: bool = False,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Returns the action (a number or an array (A,), or (B,) or (B, A) of them).

        Args:
            observation: As the environment gives it, or (B, S) of them.
            reward: What the last action earned, a number or (B,); not looked at in an episode's
                first step.
            return_attention_scores: Whether to return (action, dict of scores) instead.
            timeout: Seconds, instead of the client's.

        Raises:
            ServingError: If the server does not answer. The window stays as it was, so the step may
                be asked again.
            InvalidInput: If the observation is of another shape, or it or a reward that is looked
                at is not finite. The window stays as it was.
        """
        dtype, shape = self._specs["states"]
        states = self._batch(observation, dtype, shape[2:])
        rewards = np.where(self._step > 0, self._each("reward", reward), 0.0)
        rewards = finite("reward", rewards) * self._subtracts
        step = {
            "states": states,
            "actions": 0,
            "returns_to_go": (self._return - rewards)[:, None],
            "timesteps": self._step,
            "mask": 1,
        }
        window = {name: _moved_on(values) for name, values in self._window.items()}
        for name, value in step.items():
            window[name][:, -1] = value
        outputs = self._asker(timeout)(window, _act(return_attention_scores))
        self._window = window
        self._window["actions"][:, -1] = self._as_input(outputs["action"])
        self._return = self._return - rewards
        self._step = self._step + 1
        return self._answer(outputs, return_attention_scores)

    def _as_input(self, action):
        """Returns the action as windows hold it: a discrete one as one of A."""
        size = self._specs["actions"][1][2]
        return np.eye(size)[action] if action.ndim == 1 else action


def _act(with_attention):
    return "act_with_attention" if with_attention else "act"


def _moved_on(values):
    """Returns windows (B, K, ...) without their oldest step; the newest is to be written."""
    moved = np.empty_like(values)  # np.roll takes several times as long
    moved[:, :-1] = values[:, 1:]
    return moved
