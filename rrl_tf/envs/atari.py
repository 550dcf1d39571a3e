"""Define Atari games as tasks, with the preprocessing of the Atari 100k protocol."""

from __future__ import annotations

import functools
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, TransformReward

from rrl_tf._arguments import positive_int
from rrl_tf.envs.preprocessing import scaled
from rrl_tf.envs.task import Level, Task
from rrl_tf.envs.wrappers import StackFrames
from rrl_tf.errors import InvalidInput


def atari_task(game: str = "ALE/Alien-v5", *, frames: int = 4) -> Task:
    """Return an Atari game as a `Task`.

    Training replaces each reward by its sign; evaluation reports the game's own score. Gymnasium's
    `AtariPreprocessing` makes the observations:

    - An observation is an 84 x 84 grey image, the pixelwise maximum of the last two of four frames.
    - An episode is a full game of at most 108,000 frames and starts with 1 to 30 no-ops.
    - Actions are the game's minimal set, and they are never repeated at random (sticky actions).
    - In training, `info["life_lost"]` reports the loss of a life, which the agent treats as
      terminal.

    Args:
        game: id of a game of ale-py, such as `ALE/Alien-v5`.
        frames: number of images stacked along the last axis.

    Returns:
        A `Task` of one level, without a definition of success.

    Raises:
        InvalidInput: if there is no such game, or ale-py or OpenCV is not installed.

    Example:
        >>> task = atari_task("ALE/Alien-v5")
        >>> task.preprocessor.shape, task.action_names[:3]
        ((84, 84, 4), ('NOOP', 'FIRE', 'UP'))

    Source: the protocol of "Atari 100k" (Kaiser et al., 2020), as in
    github.com/google/dopamine, `labs/atari_100k`.
    """
    positive_int("frames", frames)
    make = functools.partial(_make, game, frames)
    test_env = make(training=False)
    space: Any = test_env.observation_space
    return Task(
        name=game,
        levels=(
            Level(
                "",
                functools.partial(make, training=True),
                functools.partial(make, training=False),
            ),
        ),
        preprocessor=scaled(space),
        action_names=tuple(test_env.get_wrapper_attr("get_action_meanings")()),
        frames=frames,
    )


class LifeLossInfo(gymnasium.Wrapper):
    """Adds `info["life_lost"]`, which is true if a step loses a life and the game continues.

    `AtariPreprocessing` can end the episode when a life is lost, but the reset that follows starts
    a new game. An agent would then never play with fewer than all lives.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._lives = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a game and store its number of lives."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return observation, info

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step and compare the number of lives."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lost = info["lives"] < self._lives and not terminated
        self._lives = info["lives"]
        return observation, reward, terminated, truncated, {**info, "life_lost": lost}


def _make(game, frames, training, render_mode=None):
    env = AtariPreprocessing(_game(game, render_mode), grayscale_newaxis=True)
    if training:
        env = TransformReward(LifeLossInfo(env), lambda reward: float(np.sign(reward)))
    return StackFrames(env, frames)


def _game(game, render_mode):
    try:
        import ale_py
        import cv2  # noqa: F401 - `AtariPreprocessing` needs it
    except ImportError as error:
        raise InvalidInput(
            f"Atari games need {error.name}, which is not installed. Run `pip install '.[atari]'`."
        ) from error
    gymnasium.register_envs(ale_py)
    try:
        if "ale_py" not in str(gymnasium.spec(game).entry_point):
            raise ValueError("this environment is not an Atari game")
        return gymnasium.make(
            game,
            render_mode=render_mode,
            frameskip=1,
            repeat_action_probability=0.0,
            full_action_space=False,
        )
    except (gymnasium.error.Error, ImportError, TypeError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidInput(
            f"`game` must be the id of a game of ale-py ({first}); received {game!r}"
        ) from error
