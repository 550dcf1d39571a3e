"""Trains a Decision Transformer on recorded episodes and asks it for different returns.

python -m train_scripts.train_decision_transformer                   # DoorKey, data made here
python -m train_scripts.train_decision_transformer --preset fast \
    --data tfds:d4rl_mujoco_walker2d/v2-medium
python -m train_scripts.train_decision_transformer --preset bc-10 --data minari:FOLDER
"""

import dataclasses
import functools
import pathlib
from typing import Literal

import keras
import numpy as np
from tqdm import tqdm
from tqdm.keras import TqdmCallback

from rrl_tf import viz
from rrl_tf.agents.trajectory_policy import TrajectoryPolicy, play_episodes
from rrl_tf.data.scaling import Scaling
from rrl_tf.data.sources import load_episodes
from rrl_tf.data.windows import Windows
from rrl_tf.envs import PREPARATIONS
from rrl_tf.errors import InvalidInput
from rrl_tf.export import export_decision_transformer
from rrl_tf.models import BehaviorCloning, DecisionTransformer
from rrl_tf.training import (
    Checkpoint,
    LogMetrics,
    MetricsLog,
    Profile,
    RunFolder,
    atomic_file,
)
from train_scripts import collect_dataset, command_line


@dataclasses.dataclass(frozen=True)
class Config:
    """Every number of a run. A step is one update."""

    preset: str = "doorkey"
    """Where the numbers below come from."""
    seed: int = 0
    """Of the weights, the windows and what is held out."""
    name: str = ""
    """Folder under `runs`; by default the preset, the data and the seed."""
    runs: str = "runs/decision_transformer"
    """Where runs are kept."""

    data: str = "doorkey"
    """`minari:ID`, `tfds:NAME`, `hdf5:FILE`, a path after minari: or tfds:, or `doorkey`, which
    `train_scripts.collect_dataset` records."""
    best_share: float = 1.0
    """Train on the best episodes that hold this share of the steps: 0.1 makes BC %BC."""
    held_out: float = 0.05
    """Share of the episodes kept from training, for the error of predicted actions."""
    preparation: Literal["standardise", "one_hot_compass"] = "one_hot_compass"
    """How observations become states."""
    return_scale: float | None = None
    """What returns are divided by; the largest one in the data if not given."""

    model: Literal["decision_transformer", "behavior_cloning"] = "decision_transformer"
    network: str = "fast"
    """Preset of `DecisionTransformer`."""
    width: int = 64
    """Size of a token."""
    num_blocks: int = 2
    num_heads: int = 1
    context_length: int = 10
    """Steps of a window."""
    dropout: float = 0.1
    """Rate in the network in training."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the network."""
    jit_compile: bool = False
    """Compile the step with XLA."""

    steps: int = 3000
    """When to stop. The same command with a larger number goes on, unless the schedule is cosine,
    which plans for the end."""
    batch_size: int = 64
    sampling: Literal["steps", "returns", "episodes"] = "steps"
    """What is equally likely: every step to end a window, or every episode to be in one. Or steps
    count for more the higher their episode's return."""
    starts: float = 0.0
    """Share of the windows that end within the first 2 K steps of an episode."""
    learning_rate: float = 1e-3
    """AdamW's step size; the largest one, after the warm-up."""
    warmup_steps: int = 200
    schedule: Literal["constant", "cosine"] = "cosine"
    """After the warm-up: constant, or half a cosine down to 0."""
    weight_decay: float = 1e-4
    clip_norm: float = 0.25
    """Largest global norm of the gradient."""

    targets: tuple[float, ...] = ()
    """Returns to ask for; by default some between the data's worst and best."""
    acting: Literal["recompute", "cached"] = "recompute"
    """Read the whole window at every step, or keep keys and values."""
    evaluation_episodes: int = 100
    """Played in the end for each target with the last weights, for the largest with the best."""
    progress_episodes: int = 20
    """Played for the largest target during the training."""
    evaluate_every: int = 1000
    """Steps between these, a multiple of `log_every`; 0 plays only in the end."""
    log_every: int = 100
    """Steps between rows of the log; a divisor of `steps`."""
    checkpoint_every: int = 500
    """Steps between checkpoints, a multiple of `log_every`."""
    profile_from: int | None = None
    """Record 20 steps from this one on for TensorBoard's profiler."""


# Most steps of DoorKey's data are random play, as it lasts longest; most episodes are not.
DOORKEY = Config(sampling="episodes", targets=(0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95))
FAST = dataclasses.replace(
    DOORKEY,
    preset="fast",
    preparation="standardise",
    return_scale=1000.0,
    width=128,
    num_blocks=3,
    dropout=0.2,
    steps=5000,
    sampling="returns",
    starts=0.2,
    warmup_steps=500,
    targets=(),
    log_every=250,
    evaluate_every=1250,
    checkpoint_every=1000,
)
MIN_DT = dataclasses.replace(
    FAST,
    preset="min-dt",
    network="min-dt",
    context_length=20,
    dropout=0.1,
    steps=20_000,
    sampling="episodes",
    starts=0.0,
    learning_rate=1e-4,
    warmup_steps=10_000,
    schedule="constant",
)
BC = dataclasses.replace(
    FAST,
    preset="bc",
    model="behavior_cloning",
    context_length=1,
    dropout=0.1,
    steps=20_000,
    sampling="steps",
    starts=0.0,
    batch_size=256,
    learning_rate=3e-4,
    evaluate_every=5000,
)
PRESETS = {
    "doorkey": DOORKEY,
    "doorkey-bc": dataclasses.replace(
        DOORKEY, preset="doorkey-bc", model="behavior_cloning", context_length=1
    ),
    "fast": FAST,
    "min-dt": MIN_DT,
    "paper": dataclasses.replace(
        MIN_DT, preset="paper", network="paper", steps=100_000, sampling="steps"
    ),
    "bc": BC,
    "bc-10": dataclasses.replace(BC, preset="bc-10", best_share=0.1),
}


def main(config):
    """Trains a Decision Transformer on recorded episodes; the same command again continues."""
    check_intervals(config)
    data = load(config)
    keras.utils.set_random_seed(config.seed)
    folder = RunFolder(run_path(config), dataclasses.asdict(config), may_change=("steps",))
    training, held_out = split(data, config)
    scaling = Scaling.of(training, config.return_scale, preparation(config))
    model = make_model(config, data, scaling)
    checkpoint = Checkpoint(folder, model, config.checkpoint_every // config.log_every)
    log = MetricsLog(folder.path, until_step=checkpoint.step)
    log.settings(dataclasses.asdict(config))
    if folder.is_finished(checkpoint.step):
        print(f"{folder.path} is trained already, to step {checkpoint.step:,}")
        if checkpoint.step >= config.steps:
            return folder, model
    trial = Trial(config, data, scaling)
    if checkpoint.step < config.steps:
        windows = Windows(training, config.context_length, config.sampling, config.starts)
        model.fit(
            windows.dataset(config.batch_size, scaling, config.seed, checkpoint.step),
            validation_data=validation(held_out, scaling, config),
            initial_epoch=checkpoint.epoch,
            epochs=config.steps // config.log_every,
            steps_per_epoch=config.log_every,
            callbacks=callbacks(config, folder, log, trial, checkpoint),
            shuffle=False,
            verbose=0,
        )
    finish(config, folder, model, data, held_out, scaling, trial, log)
    return folder, model


def callbacks(config, folder, log, trial, checkpoint):
    """What happens between the steps; the order matters, see `rrl_tf.training.callbacks`."""
    return [
        *([Progress(config, folder, log, trial)] if config.evaluate_every and trial.envs else []),
        LogMetrics(log),
        *([] if config.profile_from is None else [Profile(folder.path, config.profile_from)]),
        TqdmCallback(verbose=0, tqdm_class=tqdm, mininterval=0.5),
        checkpoint,
    ]


class Trial:
    """Plays episodes and asks for returns.

    Args:
        config: `Config`.
        data: `OfflineData`; without its environment, nothing can be played.
        scaling: `Scaling`.
    """

    def __init__(self, config, data, scaling):
        self._config, self._scaling = config, scaling
        self.targets = config.targets or default_targets(data.returns())
        if config.model == "behavior_cloning":
            self.targets = self.targets[-1:]  # it does not listen
        self.envs = []
        if data.make_env is not None:
            try:
                self.envs = [data.make_env() for _ in range(config.evaluation_episodes)]
            except Exception as error:
                raise InvalidInput(
                    f"cannot make {data.environment} to play in ({error}); a MuJoCo environment "
                    "needs pip install 'gymnasium[mujoco]'"
                ) from error

    def play(self, model, target, episodes, seed):
        """Outcomes of so many episodes, as `play_episodes` returns them."""
        policy = TrajectoryPolicy(model, self._scaling, self._config.acting)
        return play_episodes(policy, self.envs[:episodes], target, range(seed, seed + episodes))

    def sweep(self, model, targets, seed):
        """Dict target → means of `evaluation_episodes` episodes."""
        table = {}
        for target in tqdm(targets, desc="targets", unit="target", leave=False):
            played = self.play(model, target, len(self.envs), seed)
            table[f"{target:g}"] = {
                "return": float(played["return"].mean()),
                "return_deviation": float(played["return"].std()),
                "length": float(played["length"].mean()),
                **({"success": float(played["success"].mean())} if "success" in played else {}),
            }
        return table


class Progress(keras.callbacks.Callback):
    """Plays some episodes for the largest target now and then, and keeps the best weights.

    What it finds goes into the logs that `LogMetrics`, which comes after it, writes.
    """

    def __init__(self, config, folder, log, trial):
        super().__init__()
        self._config, self._folder, self._trial = config, folder, trial
        self._best = max(
            (row["eval/return"] for row in log.rows if "eval/return" in row), default=-np.inf
        )

    def on_epoch_end(self, epoch, logs=None):
        step = int(self.model.optimizer.iterations)
        if step % self._config.evaluate_every:
            return
        target = max(self._trial.targets)
        # Other episodes than those of the final evaluation, which would be flattered by the choice.
        played = self._trial.play(self.model, target, self._config.progress_episodes, 1_000_000)
        logs["val_return"] = float(played["return"].mean())
        logs["val_length"] = float(played["length"].mean())
        if logs["val_return"] >= self._best:
            self._best = logs["val_return"]
            with atomic_file(best_weights(self._folder)) as draft, draft.open("wb") as file:
                np.savez(file, *self.model.get_weights())


def finish(config, folder, model, data, held_out, scaling, trial, log):
    """Final evaluation, figure and export of a run that has just been trained."""
    step = int(log.rows[-1]["step"])
    summary = {
        "step": step,
        "data": data.name,
        "environment": data.environment,
        "parameters": model.count_params(),
        "data_return": {"mean": float(data.returns().mean()), "max": float(data.returns().max())},
        "action_error": error_by_return(model, held_out, scaling, config),
    }
    paths = []
    if trial.envs:
        summary["last"] = trial.sweep(model, trial.targets, seed=0)
        if best_weights(folder).exists():
            best = make_model(config, data, scaling)
            with np.load(best_weights(folder)) as arrays:
                best.set_weights([arrays[f"arr_{i}"] for i in range(len(arrays.files))])
            # What they were chosen for, and nothing else.
            summary["best"] = trial.sweep(best, [max(trial.targets)], seed=0)
        if data.reference_returns:
            for which in ("last", "best"):
                for row in summary.get(which, {}).values():
                    row["d4rl_score"] = data.score(row["return"])
        figure = draw_targets(summary)
        log.image(step, "targets", viz.figure_to_image(figure))
        paths.append(viz.save_figure(figure, folder.figures / "targets.png"))
    if config.model == "decision_transformer":
        paths.append(export(config, folder, model, data, scaling, summary))
    folder.finish(summary)
    print(in_words(summary, step) + f"\nwritten: {', '.join(map(str, paths))}")


def in_words(summary, step):
    """The outcome in a few lines."""
    error = ", ".join(f"{value:.3g}" for value in summary["action_error"].values())
    lines = [
        f"step {step:,}: {summary['data']}, mean return {summary['data_return']['mean']:.4g}, "
        f"best {summary['data_return']['max']:.4g}; action error by return, low to high: {error}"
    ]
    for which in ("last", "best"):
        for target, row in summary.get(which, {}).items():
            more = [f"{name} {row[name]:.3g}" for name in ("success", "d4rl_score") if name in row]
            lines.append(
                f"  {which} weights, asked for {target}: {row['return']:.4g} ± "
                f"{row['return_deviation']:.2g} in {row['length']:.0f} steps"
                + "".join(f", {part}" for part in more)
            )
    return "\n".join(lines)


def draw_targets(summary):
    """The figure of returns that were asked for and returns that were reached."""
    curves = {
        f"{which} weights": (
            [float(target) for target in summary[which]],
            [[row["return"] for row in summary[which].values()]],
        )
        for which in ("last", "best")
        if which in summary
    }
    title = f"{summary['data']}, {summary['environment']}"
    means = {"mean of the data": summary["data_return"]["mean"]}
    return viz.returns_figure({title: curves}, {title: means})


def error_by_return(model, data, scaling, config, windows=512):
    """Error of predicted actions in held-out windows, by the return that was still to come.

    Returns:
        Dict of the quarters of the windows by their return-to-go → the share of wrong actions, or
        the mean squared error of continuous ones.
    """
    batch = scaling.window(Windows(data, config.context_length).batch(windows, seed=0))
    predicted = np.asarray(model.predict(batch, verbose=0)["action"])[:, -1]
    actual = np.asarray(batch["actions"])[:, -1]
    if data.discrete:
        errors = (predicted.argmax(-1) != actual.argmax(-1)).astype(float)
    else:
        errors = ((predicted - actual) ** 2).mean(axis=-1)
    order = np.argsort(np.asarray(batch["returns_to_go"])[:, -1, 0], kind="stable")
    parts = np.array_split(errors[order], 4)
    return {f"quarter_{i}": float(part.mean()) for i, part in enumerate(parts, start=1)}


def export(config, folder, model, data, scaling, summary):
    """Writes the trained policy as a servable version."""
    observation = data.episodes[0].observations
    return export_decision_transformer(
        folder.export,
        model,
        scaling,
        observation.shape[1:],
        observation.dtype,
        policy={
            "environment": data.environment,
            "data": data.name,
            "return_scale": scaling.return_scale,
            "scores": summary.get("last", {}),
        },
    )


def load(config):
    """The data, recorded first where they are ours."""
    source = config.data
    if source == "doorkey":
        source = f"minari:{collect_dataset.main(collect_dataset.Config())}"
    return load_episodes(source)


def split(data, config):
    """Episodes to train on and episodes held out, the same ones whatever the seed."""
    count = max(1, round(config.held_out * len(data.episodes)))
    if count >= len(data.episodes):
        raise InvalidInput(
            f"{data.name} has {len(data.episodes)} episodes, too few to hold any out"
        )
    order = np.random.default_rng(0).permutation(len(data.episodes))
    parts = [
        dataclasses.replace(data, episodes=tuple(data.episodes[i] for i in np.sort(part)))
        for part in (order[count:], order[:count])
    ]
    return parts[0].best(config.best_share), parts[1]


def validation(held_out, scaling, config, windows=256):
    """`(inputs, targets, weights)` of held-out windows, the same at every call."""
    batch = Windows(held_out, config.context_length).batch(windows, seed=0)
    inputs = {name: np.asarray(values) for name, values in scaling.window(batch).items()}
    return inputs, {"action": inputs["actions"]}, {"action": inputs["mask"]}


def default_targets(returns):
    """Five returns from the data's worst to its best."""
    low, high = float(returns.min()), float(returns.max())
    return tuple(float(f"{low + share * (high - low):.3g}") for share in (0, 0.25, 0.5, 0.75, 1))


def preparation(config):
    """The function from raw observations to what is flattened into a state, or None."""
    return None if config.preparation == "standardise" else PREPARATIONS[config.preparation]


def make_model(config, data, scaling):
    """A compiled model with new weights."""
    sizes = {"state_size": scaling.state_size, "action_size": data.action_size}
    sizes |= {"discrete": data.discrete, "dtype": config.dtype}
    if config.model == "behavior_cloning":
        model = BehaviorCloning(dropout=config.dropout, **sizes)
    else:
        model = DecisionTransformer.from_preset(
            config.network,
            width=config.width,
            num_blocks=config.num_blocks,
            num_heads=config.num_heads,
            context_length=config.context_length,
            dropout=config.dropout,
            heads=("action",),  # nothing is learned from the other predictions
            **sizes,
        )
    model.build()
    loss = keras.losses.MeanSquaredError
    if data.discrete:
        loss = functools.partial(keras.losses.CategoricalCrossentropy, from_logits=True)
    model.compile(
        keras.optimizers.AdamW(
            learning_rate(config),
            weight_decay=config.weight_decay,
            global_clipnorm=config.clip_norm,
        ),
        # The mean over the steps that are there.
        {"action": loss(reduction="mean_with_sample_weight")},
        jit_compile=config.jit_compile,
    )
    return model


def learning_rate(config):
    """AdamW's step size as a schedule."""
    if config.schedule == "cosine":
        return keras.optimizers.schedules.CosineDecay(
            0.0,
            decay_steps=config.steps - config.warmup_steps,
            warmup_target=config.learning_rate,
            warmup_steps=config.warmup_steps,
        )
    return keras.optimizers.schedules.PolynomialDecay(
        config.learning_rate / config.warmup_steps, config.warmup_steps, config.learning_rate
    )


def best_weights(folder):
    """The file of the weights that did best during the training."""
    return folder.path / "best.npz"


def run_path(config):
    """The run's folder."""
    data = config.data.rstrip("/").replace("\\", "/").split(":")[-1]
    words = "-".join(part for part in data.split("/")[-2:] if part)
    name = f"{config.preset}-{words}" if config.data != "doorkey" else config.preset
    return pathlib.Path(config.runs) / (config.name or f"{name}-seed{config.seed}")


def check_intervals(config):
    """Raises a `ValueError` where the log would not come out even."""
    for name in ("steps", "checkpoint_every", "evaluate_every"):
        if getattr(config, name) % config.log_every:
            raise InvalidInput(
                f"{name} must be a multiple of log_every; received {getattr(config, name)} and "
                f"{config.log_every}"
            )
    if config.progress_episodes > config.evaluation_episodes:
        raise InvalidInput(
            "progress_episodes must not be more than evaluation_episodes; received "
            f"{config.progress_episodes} and {config.evaluation_episodes}"
        )


if __name__ == "__main__":
    command_line.run_preset(main, PRESETS, default="doorkey")
