"""Random episodes with the sizes of Walker2d, in each format that `load_episodes` reads."""

import os
import warnings

import gymnasium
import numpy as np

STATES, ACTIONS = 17, 6


def made_up(episodes, steps):
    """Yield episodes as dicts of arrays; every second one is terminated."""
    rng = np.random.default_rng(0)
    for i in range(episodes):
        yield {
            "observations": rng.normal(size=(steps + 1, STATES)).astype("float32"),
            "actions": rng.uniform(-1, 1, size=(steps, ACTIONS)).astype("float32"),
            "rewards": rng.normal(size=steps).astype("float32"),
            "terminated": bool(i % 2),
        }


def write_minari(folder, episodes):
    """Write a Minari data set without an environment and return its source."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import minari  # reads MINARI_DATASETS_PATH once, when it is imported

    buffers, episodes = [], list(episodes)
    (states,), (actions,) = (episodes[0][name].shape[1:] for name in ("observations", "actions"))
    for i, episode in enumerate(episodes):
        end = np.arange(len(episode["rewards"])) == len(episode["rewards"]) - 1
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=i,
                observations=episode["observations"],
                actions=episode["actions"],
                rewards=episode["rewards"],
                terminations=end & episode["terminated"],
                truncations=end & (not episode["terminated"]),
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about missing metadata
        minari.create_dataset_from_buffers(
            "benchmarks/made-up-v0",
            buffers,
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (states,), "float32"),
            action_space=gymnasium.spaces.Box(-1, 1, (actions,), "float32"),
        )
    return f"minari:{folder}/benchmarks/made-up-v0"


def write_rlds(folder, episodes, dataset="made_up"):
    """Write a data set of TensorFlow Datasets in RLDS form and return its source."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.rlds import rlds_base

    episodes = list(episodes)
    states, actions = (
        tfds.features.Tensor(shape=episodes[0][name].shape[1:], dtype=np.float32)
        for name in ("observations", "actions")
    )
    form = rlds_base.DatasetConfig(
        "made up",
        observation_info=states,
        action_info=actions,
        reward_info=np.float32,
        discount_info=np.float32,
    )

    class MadeUp(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = dataset
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return rlds_base.build_info(form, self)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, episode in enumerate(episodes):
                yield i, {"steps": rlds_steps(**episode)}

    builder = MadeUp(data_dir=folder)
    builder.download_and_prepare()
    return f"tfds:{builder.data_dir}"


def rlds_steps(observations, actions, rewards, terminated):
    """Return an episode in RLDS form, whose last step holds only an observation."""
    count = len(rewards)
    return [
        {
            "observation": observations[t],
            "action": actions[t] if t < count else np.zeros_like(actions[0]),
            "reward": rewards[t] if t < count else np.float32(0),
            "discount": np.float32(1),
            "is_first": t == 0,
            "is_last": t == count,
            "is_terminal": t == count and terminated,
        }
        for t in range(count + 1)
    ]
