"""A run of `keras.Model.fit` that can be killed at any moment and goes on with the same command.

    keras.utils.set_random_seed(config.seed)
    model = make_model(config)  # built and compiled; whatever can be wrong is found out by here
    run = FitRun(config, model, steps=config.steps, steps_per_epoch=config.log_every)
    if not run.is_finished():
        run.fit(dataset(first_step=run.step), validation_data=held_out)
        run.finish({"test/accuracy": accuracy(model)}, "tested", [picture])

The order matters in three places. The model is made before the run, so that a command that is
rejected writes nothing. Data begin at `run.step`, which opening the run finds out. Pictures and
exports come before `finish`, which tells that they are there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
from tqdm import tqdm
from tqdm.keras import TqdmCallback

from rrl_tf.errors import InvalidInput
from rrl_tf.training.callbacks import Checkpoint, LogMetrics, StopWhen
from rrl_tf.training.compilation import compilation_told
from rrl_tf.training.config import RunConfig
from rrl_tf.training.divergence import require_finite
from rrl_tf.training.interruption import Interruption
from rrl_tf.training.model_state import model_state, set_model_state
from rrl_tf.training.profiling import WARM_UP, Profile
from rrl_tf.training.run import Run
from rrl_tf.training.train_function import train_function, train_step


class FitRun(Run):
    """A `Run` whose steps are batches of `fit`; opening it takes up the newest checkpoint.

    A checkpoint holds weights, optimiser and random states. An epoch of `fit` is what lies between
    two rows of the log.

    Args:
        config: `RunConfig`.
        model: compiled and built `keras.Model`; filled in place where there is a checkpoint.
        steps: batches of the whole run.
        steps_per_epoch: batches between rows of the log, a divisor of `steps`.
        checkpoint_every: batches between checkpoints, a multiple of `steps_per_epoch`; by default
            as many. The last epoch is always saved.
        **options: `may_change`, `evaluated_with`, `hints`, `identity`, `defaults`, `stop` and
            `replicas`, see `Run`.

    Attributes:
        model: see above.

    Raises:
        InvalidInput: if the model has no weights yet, an interval does not come out even, the
            folder holds another run, or its checkpoint is of another model.

    Example:
        >>> import tensorflow as tf
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> run = FitRun(RunConfig(name="first"), model, steps=4, steps_per_epoch=2)
        >>> run.fit(tf.data.Dataset.from_tensors((tf.ones((8, 2)), tf.ones((8, 1)))).repeat())
        >>> FitRun(RunConfig(name="first"), model, steps=4, steps_per_epoch=2)
        FitRun('runs/first', step=4, steps=4)
    """

    def __init__(
        self,
        config: RunConfig,
        model: keras.Model,
        *,
        steps: int,
        steps_per_epoch: int,
        checkpoint_every: int | None = None,
        **options: Any,
    ) -> None:
        self._checkpoint_every = checkpoint_every or steps_per_epoch
        if steps % steps_per_epoch or self._checkpoint_every % steps_per_epoch:
            raise InvalidInput(
                f"steps and checkpoint_every must be multiples of the {steps_per_epoch} steps of "
                f"an epoch; received {steps} and {self._checkpoint_every}"
            )
        if not model.built:
            raise InvalidInput(f"FitRun needs a built model; received {model.name} without weights")
        model.optimizer.build(model.trainable_variables)
        model.train_step = functools.partial(train_step, model)
        self.model, self._steps_per_epoch = model, steps_per_epoch
        super().__init__(config, steps, restore=self._restore, **options)

    def _restore(self, step, state):
        set_model_state(self.model, state["variables"])

    def fit(
        self,
        data: Any,
        *,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        measure: Callable[[int], Mapping[str, float]] | None = None,
        network: keras.Model | None = None,
        **options: Any,
    ) -> None:
        """Trains to the end, if the run is not there yet.

        SIGINT and SIGTERM end it after the epoch under way, with a checkpoint. Of several hosts
        only the chief validates and measures.

        Args:
            data: `keras.utils.PyDataset`, of which an epoch is one pass, or an endless
                `tf.data.Dataset`; from `step` on. Batches of all devices together.
            callbacks: are called after the row of the log is written.
            measure: function of the step → more metrics for the row, called before it is written.
            network: for several devices, see `train_function`.
            **options: of `keras.Model.fit`, such as `validation_data`.

        Raises:
            InvalidInput: if the loss of an epoch, or a weight that is to be saved, is not finite.
            ConnectionError: if another host is lost.
            KeyboardInterrupt: after SIGINT.
            SystemExit: after SIGTERM, with code 143.
        """
        if self.is_over():
            return
        replicas = self.replicas
        if replicas.count > 1:
            self.model.train_function = train_function(self.model, replicas, network)
        if not replicas.is_chief:
            measure, options = None, options | {"validation_data": None}
        # Whoever reads the log comes after the one who writes it, and the checkpoint last.
        with replicas.losses_told(), compilation_told(), Interruption() as interruption:
            also = [
                LogMetrics(self.log, measure),
                *callbacks,
                *self._profile(),
                *self._progress_bar(),
                StopWhen(
                    lambda step: interruption.agreed(replicas) or replicas.any(self.is_over(step))
                ),
                Checkpoint(self._save_model, self._checkpoint_every),
            ]
            is_sized = isinstance(data, keras.utils.PyDataset)
            self.model.fit(
                data,
                initial_epoch=self._epochs(self.step),
                epochs=self._epochs(self.steps),
                steps_per_epoch=None if is_sized else self._steps_per_epoch,
                callbacks=also,
                shuffle=False,  # Keras would draw another order after a resume
                verbose=0,
                **options,
            )
            interruption.obey()

    def _profile(self) -> list[Profile]:
        if not self.config.profile:
            return []
        return [Profile(self.folder.path, min(WARM_UP, (self.steps - self.step) // 2))]

    def _progress_bar(self) -> list[keras.callbacks.Callback]:
        if not self.replicas.is_chief:
            return []
        begun = {"initial": self._epochs(self.step), "mininterval": 0.5}
        return [TqdmCallback(self._epochs(self.steps), verbose=0, tqdm_class=tqdm, **begun)]

    def _epochs(self, steps):
        return steps // self._steps_per_epoch

    def _save_model(self, step: int) -> None:
        arrays = model_state(self.model)
        require_finite(step, arrays)
        self.save(step, {"variables": arrays}, self.model)
