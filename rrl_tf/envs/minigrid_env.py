"""Define what all MiniGrid environments share: chosen starts, wrappers and `minigrid_task`."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from minigrid.minigrid_env import MiniGridEnv

from rrl_tf._arguments import one_of, optional_positive_int, reset_option
from rrl_tf.envs import minigrid_view as views
from rrl_tf.envs.preprocessing import Preprocessor, one_hot
from rrl_tf.envs.task import Level, Task
from rrl_tf.envs.wrappers import SelectActions, StackFrames
from rrl_tf.errors import InvalidInput


class StartableEnv(MiniGridEnv):
    """A MiniGrid world whose episodes can begin at a chosen start.

    A subclass lists this class before MiniGrid's own class in its bases. It sets `start_type`;
    its `_gen_grid` builds the grid of `_chosen_start()` and assigns the attribute `start`.

    Args:
        starts: starts from which each reset draws uniformly; `None` uses MiniGrid's generator.
        max_steps: time limit in steps; `None` is MiniGrid's.
        **options: arguments of MiniGrid's class.

    Raises:
        InvalidInput: if `starts` is empty or has an invalid start, or `max_steps` is not positive.
    """

    start_type: type
    start: Any = None
    action_names = views.ACTION_NAMES
    _starts: tuple[Any, ...] | None = None
    _requested: Any = None
    _field_of_view: views.FieldOfView | None = None

    def __init__(self, starts: Iterable[Any] | None, max_steps: int | None, **options: Any) -> None:
        limit: Any = optional_positive_int("max_steps", max_steps)
        super().__init__(max_steps=limit, **options)
        if starts is not None:
            self._starts = tuple(map(self._checked, starts))
            if not self._starts:
                raise InvalidInput(
                    f"`starts` must hold at least one {self.start_type.__name__} or be None; "
                    "received none"
                )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, at `options["start"]` if it is given.

        Raises:
            InvalidInput: if `options` has an unknown key, or the start is invalid.
        """
        start = reset_option("start", options)
        self._requested = None if start is None else self._checked(start)
        self._field_of_view = None
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take an action; the last `info` of an episode contains `"success"`."""
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info["success"] = terminated and self._is_success(reward)
        return observation, reward, terminated, truncated, info

    def gen_obs(self) -> dict[str, Any]:
        """Return the same observation as MiniGrid, computed faster by `FieldOfView`."""
        if self._field_of_view is None or self._grid_has_changed():
            self._field_of_view = views.FieldOfView(self.grid.encode())
        carrying = self.carrying.encode() if self.carrying else None
        image = self._field_of_view.look(tuple(self.agent_pos), self.agent_dir, carrying)
        return {"image": image, "direction": self.agent_dir, "mission": self.mission}

    def contents(self) -> tuple[Any, ...]:
        """Return a tuple that determines all of the grid except the agent."""
        raise NotImplementedError

    def state_key(self) -> tuple[Any, ...]:
        """Return a key; two states have equal keys if and only if they have the same future.

        The key does not include the step count. A deterministic policy without a memory that meets
        the same key twice in an episode therefore repeats itself until the time limit. The key does
        not include the memory of a recurrent policy either.
        """
        return (*self.contents(), *map(int, self.agent_pos), int(self.agent_dir))

    def _grid_has_changed(self):
        """Return whether the grid has changed since the previous observation of this episode."""
        return False

    def _is_success(self, reward):
        """Return whether a terminated episode is a success: a wrong goal has no reward."""
        return bool(reward > 0)

    def _chosen_start(self):
        """Return the requested start or a drawn one; `None` if MiniGrid generates the start."""
        if self._requested is None and self._starts is not None:
            return self._starts[self.np_random.integers(len(self._starts))]
        return self._requested

    def _checked(self, start):
        if not isinstance(start, self.start_type) or start.size != self.width:
            raise InvalidInput(
                f"every start must be a {self.start_type.__name__} of size {self.width}; "
                f"received {start!r}"
            )
        return start


class ImageObservation(gymnasium.ObservationWrapper):
    """Replaces MiniGrid's dict observation with its egocentric image, (7, 7, 3) uint8."""

    channels = 3

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        width, height, _ = space["image"].shape
        high = np.array(views.CODES_PER_CHANNEL[: self.channels], np.uint8) - 1
        self.observation_space = Box(0, np.tile(high, (width, height, 1)), dtype=np.uint8)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Return the image, without the mission."""
        return observation["image"]


class CompassObservation(ImageObservation):
    """Returns the egocentric image and, as fourth channel, the agent's direction, (7, 7, 4) uint8.

    All cells of the fourth channel contain the direction.
    """

    channels = 4

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Return a new array of the image and the direction."""
        view = np.empty((*observation["image"].shape[:2], self.channels), np.uint8)
        view[..., :3] = observation["image"]
        view[..., 3] = observation["direction"]
        return view


class MissionObservation(CompassObservation):
    """Adds the mission to a `CompassObservation`, in one channel for each of its variable words.

    A mission such as "go to the red door" has one variable word, the colour. All cells of the fifth
    channel contain its number: that of the word in the list of `MissionSpace`. Without variable
    words, as in DoorKey, the observation is that of `CompassObservation`.

    BabyAI's missions are ignored, because its mission space does not list the words.

    Raises:
        InvalidInput: from `reset` and `step`, if the mission space does not contain the mission.

    Example:
        >>> env = MissionObservation(gymnasium.make("MiniGrid-GoToObject-6x6-N2-v0"))
        >>> observation, _ = env.reset(seed=0)
        >>> env.unwrapped.mission, observation.shape  # colour and kind of the object
        ('go to the blue key', (7, 7, 6))
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        mission = space["mission"]
        # BabyAI and some wrappers do not list the words.
        words = getattr(mission, "ordered_placeholders", None) or []
        variable = [i for i, each in enumerate(words) if len(each) > 1]
        self._numbers: dict[str, list[int]] = {}
        for choice in itertools.product(*words) if variable else ():
            numbers = [words[i].index(choice[i]) for i in variable]
            self._numbers.setdefault(mission.mission_func(*choice), numbers)
        self.channels = CompassObservation.channels + len(variable)
        last = np.array([len(words[i]) - 1 for i in variable], np.uint8)
        compass: Any = self.observation_space
        last = np.tile(last, (*compass.shape[:2], 1))
        high = np.concatenate((compass.high, last), axis=-1)
        self.observation_space = Box(0, high, dtype=np.uint8)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Return a new array of the image, the direction and the mission."""
        view = super().observation(observation)
        if self._numbers:
            mission = observation["mission"]
            if mission not in self._numbers:
                raise InvalidInput(
                    "the mission must be one of the mission space, such as "
                    f"{next(iter(self._numbers))!r}; received {mission!r}"
                )
            view[..., CompassObservation.channels :] = self._numbers[mission]
        return view


class MiniGridStateKey(gymnasium.Wrapper):
    """Adds `state_key` and `action_names` to any MiniGrid environment."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions; some environments have only the first of MiniGrid's seven."""
        space: Any = self.action_space
        return views.ACTION_NAMES[: int(space.n)]

    def state_key(self) -> Hashable:
        """Return a key; two states with equal keys have the same future.

        The key includes the state of the random number generator. In an environment whose objects
        move at random, no key therefore repeats.
        """
        world: Any = self.unwrapped
        return (
            world.grid.encode().tobytes(),
            tuple(map(int, world.agent_pos)),
            int(world.agent_dir),
            world.carrying.encode() if world.carrying else None,
            tuple(world.np_random.bit_generator.state["state"].values()),
        )


class SelectReward(gymnasium.Wrapper):
    """Replaces MiniGrid's reward.

    Args:
        env: MiniGrid environment.
        reward: `"env"` keeps MiniGrid's reward; `"success"` is 1 at the end of a successful episode
            and 0 otherwise; `"book"` is MiniGrid's reward in a step that terminates the episode and
            -0.01 in every other step.

    Raises:
        InvalidInput: if the name is unknown.
    """

    def __init__(self, env: gymnasium.Env, reward: str) -> None:
        super().__init__(env)
        self._reward = one_of("reward", reward, REWARDS)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and replace its reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._reward == "success":
            reward = info.get("success", terminated)
        elif self._reward == "book" and not terminated:
            reward = -0.01
        return observation, float(reward), terminated, truncated, info


REWARDS = ("env", "success", "book")
OBSERVATIONS = {"view": ImageObservation, "compass": CompassObservation}


def wrapped(
    env: gymnasium.Env,
    frames: int,
    reward: str,
    actions: Sequence[int] | None = None,
    observation: str = "compass",
) -> gymnasium.Env:
    """Wrap a MiniGrid environment for training.

    Args:
        env: MiniGrid environment.
        frames: number of observations stacked along the channels.
        reward: as in `SelectReward`.
        actions: MiniGrid's codes of the actions that the agent may choose; `None` is all.
        observation: `"view"` or `"compass"`, a key of `OBSERVATIONS`.

    Raises:
        InvalidInput: if a name is unknown, or `frames` is not positive.
    """
    env = OBSERVATIONS[one_of("observation", observation, tuple(OBSERVATIONS))](env)
    env = StackFrames(env, frames)
    if actions is not None:
        env = SelectActions(env, actions)
    return SelectReward(env, reward)


def minigrid_task(
    name: str,
    levels: Sequence[Level],
    coloured: bool = False,
    preprocessor: Preprocessor | None = None,
    **details: Any,
) -> Task:
    """Return the `Task` of a MiniGrid environment with an `ImageObservation` wrapper.

    Args:
        name, levels, **details: as in `Task`.
        coloured: whether labels of objects always include the colour. An object then keeps its
            label when an object of the same kind and another colour comes into view.
        preprocessor: as in `Task`; `None` is the one-hot encoding.
    """
    env = levels[-1].make_env()
    space: Any = env.observation_space
    channels = env.get_wrapper_attr("channels")
    newest = env.reset(seed=0)[0][..., -channels:]
    is_whole_grid = bool((newest[..., 0] == views.AGENT).any())
    if preprocessor is None:
        agent: Any = {"agent_cell": views.agent_cell(newest)}
        if is_whole_grid:  # the agent's cell is not constant
            agent = {"agent_code": views.AGENT}
        preprocessor = one_hot(space, space.shape[-1] // channels, views.UNSEEN, **agent)
    return Task(
        name=name,
        levels=tuple(levels),
        preprocessor=preprocessor,
        entities=lambda observation: views.object_cells(observation, channels, coloured),
        unseen=lambda observation: views.unseen_cells(observation, channels),
        view=views.whole_picture if is_whole_grid else views.agents_picture,
        rows_first=False,
        **details,
    )
