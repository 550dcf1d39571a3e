"""From what is seen now and what is remembered to the value of every action."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
from keras import ops

from rrl_tf._arguments import one_of, optional_dict, positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers._shapes import dense_on_rows
from rrl_tf.models import _memory_cores as cores
from rrl_tf.models._dense_encoder import DenseEncoder
from rrl_tf.models._dueling import dueling_values
from rrl_tf.models._encoders import RelationalEncoder, with_preprocessor
from rrl_tf.models._from_preset import FromPreset, preset_config
from rrl_tf.models._grids import dense
from rrl_tf.models._memory_cores import split_time
from rrl_tf.models._remembered_steps import check_arrays, check_steps, observation_of
from rrl_tf.models.recurrent_presets import RECURRENT_Q_NETWORK

CORES = {
    "relational_memory": cores.RelationalMemoryCore,
    "lstm": cores.LSTMCore,
    "window": cores.WindowCore,
    "none": cores.NoMemoryCore,
}
ENCODERS = ("relational", "dense")
MEMORY_INPUTS = ("vector", "entities")
ACTIVATIONS = ("relu", "leaky_relu", "elu", "gelu", "silu", "tanh")


@keras.saving.register_keras_serializable(package="rrl_tf")
class RecurrentQNetwork(FromPreset, keras.Model, presets=RECURRENT_Q_NETWORK):
    """Values the actions of an agent that sees a part of the world and remembers the rest.

    An encoder makes a vector of an observation; with the action before and its reward it goes into
    a memory; and a dense network reads both, what is seen and what is remembered. With
    `memory_input="entities"` the slots of a Relational Memory attend to the cells of the grid
    themselves, after these have attended to each other, and to one row for action and reward.

    Memory is a value in and out. `call` takes one step and `unroll` a sequence; both give the same
    numbers. Whatever is the state of an agent between two steps is in that value, `(B, M)` float32;
    a network without memory has an empty one, M = 0.

    Args:
        num_actions: A, the number of actions.
        core: `"relational_memory"`, `"lstm"`, `"window"` (a causal transformer over the last
            steps), or `"none"`.
        core_arguments: dict of arguments of the core: of `RelationalMemoryCell`; `units` of an
            LSTM; of both, `time_scale`, the most steps after which units begin to forget (Tallec
            and Ollivier, 2018); `context_length` K, `width`, `num_blocks` and those of
            `CausalTransformerBlock` for a window; or, for none, `units` of the dense layer that
            takes its place. With any, `unroll`: whether the steps of a sequence are written out in
            the graph. A Relational Memory goes through a loop, which is traced in a tenth of the
            time; for the others, whose steps are small, the loop would cost more than the steps.
        encoder: `"relational"` for a grid `(height, width, F)`, or `"dense"` for any observation,
            flattened.
        encoder_arguments: dict of arguments: of `RelationalQNetwork`, from `conv_filters` to
            `readout_cell`; or `hidden_units` of the ReLU layers of a dense encoder.
        memory_input: what a Relational Memory is fed with, the encoder's `"vector"` or its
            `"entities"`. The other cores take a vector.
        hidden_units: sizes of the dense layers after the memory.
        dueling: whether Q is made of the value of the state and centred advantages, as
            `V + A - mean(A)` (Wang et al., 2016).
        kernel_initializer: initialiser of the matrices outside encoder and core.
        head_initializer: initialiser of the last matrix; with `"zeros"` all Q values begin at 0.
        hidden_activation: of the layers after the memory: `"relu"`, `"leaky_relu"`, `"elu"`,
            `"gelu"`, `"silu"` or `"tanh"`. Where rewards are rare, ReLUs may all be off in most
            states, which then have one value and no gradient; units of `"leaky_relu"` never are
            (Maas et al., 2013).

    Call arguments:
        inputs: dict of `"observation"` `(B, ...)`, prepared; `"previous_action"` `(B,)` int, -1
            where an episode begins; `"previous_reward"` `(B,)`.
        memory: `(B, M)`, as `initial_memory` or the last call returned it; the initial one, if
            left out.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.
        return_gates: whether to return the gates as well.
        removed: `(B, N)` bool, entities of a relational encoder that nothing attends to.

    Returns:
        Q values `(B, A)` and the next memory `(B, M)`, of the variables' precision: float32 also
        under a mixed policy. Then, with `return_attention_scores`, a dict of attention
        `(B, H, N, S)`: `"round_1"` and so on of the encoder, `"block_1"` and so on of the memory,
        where N and S are slots and after them what the memory is fed with, or the K steps of a
        window, oldest first. Then, with `return_gates`, a dict `"input"`, `"forget"` and, of an
        LSTM, `"output"` of gates between 0 and 1: `(B, mem_slots, units)` or `(B, units)`.

    Raises:
        InvalidInput: for an argument out of its range, inputs that are no such dict, or a memory
            of another batch or size.

    Example:

    >>> model = RecurrentQNetwork.from_preset("relational-memory-entities", num_actions=3)
    >>> step = {"observation": keras.ops.ones((2, 7, 7, 24)),
    ...         "previous_action": keras.ops.array([-1, 2]), "previous_reward": keras.ops.zeros(2)}
    >>> q, memory, attention = model(step, return_attention_scores=True)
    >>> tuple(q.shape), tuple(memory.shape), tuple(attention["block_1"].shape)
    ((2, 3), (2, 128), (2, 2, 54, 54))

    References:
        - [Santoro et al., 2018](https://arxiv.org/abs/1806.01822)
        - [Kapturowski et al., 2019](https://openreview.net/forum?id=r1lyTjAqYX) (R2D2)
        - [Hausknecht and Stone, 2015](https://arxiv.org/abs/1507.06527)
        - [Maas et al., 2013](https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf)
    """

    _default_save_signature = None  # Keras would trace a call of `build`'s shapes for every export

    def __init__(
        self,
        num_actions: int,
        core: str,
        core_arguments: Mapping[str, Any],
        encoder: str = "relational",
        encoder_arguments: Mapping[str, Any] | None = None,
        memory_input: str = "vector",
        hidden_units: Sequence[int] = (64,),
        dueling: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        head_initializer: Initializer = "glorot_uniform",
        hidden_activation: str = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_actions = positive_int("num_actions", num_actions)
        self.core = one_of("core", core, tuple(CORES))
        self.core_arguments = optional_dict("core_arguments", core_arguments) or {}
        self.encoder = one_of("encoder", encoder, ENCODERS)
        self.encoder_arguments = optional_dict("encoder_arguments", encoder_arguments) or {}
        self.memory_input = one_of("memory_input", memory_input, MEMORY_INPUTS)
        if memory_input == "entities" and (core, encoder) != ("relational_memory", "relational"):
            raise InvalidInput(
                "memory_input='entities' goes with a Relational Memory over the entities of a "
                f"relational encoder; received core={core!r} and encoder={encoder!r}"
            )
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dueling = dueling
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.head_initializer = keras.initializers.get(head_initializer)
        self.hidden_activation = one_of("hidden_activation", hidden_activation, ACTIVATIONS)
        self._make_layers()

    def _make_layers(self):
        encoders = {"relational": RelationalEncoder, "dense": DenseEncoder}
        self.encoder_layer = self._part("encoder", encoders[self.encoder], self.encoder_arguments)
        self.core_layer = self._part("core", CORES[self.core], self.core_arguments)
        self.previous_row = None
        self.hidden = [
            dense(self, f"hidden_{i}", units, self.hidden_activation)
            for i, units in enumerate(self.hidden_units, start=1)
        ]
        self.head = keras.layers.Dense(
            self.num_actions + (1 if self.dueling else 0),  # the first is the value of the state
            kernel_initializer=self.head_initializer,
            dtype=self.dtype_policy.variable_dtype,
            name="head",
        )

    def _part(self, name, make, arguments):
        try:
            return make(**arguments, dtype=self.dtype_policy, name=name)
        except InvalidInput:
            raise
        except (TypeError, ValueError) as error:  # an argument that it does not have, or lacks
            raise InvalidInput(
                f"`{name}_arguments` do not fit {name}={getattr(self, name)!r} ({error}); "
                f"received {arguments}"
            ) from error

    def build(self, inputs_shape: dict[str, Shape]) -> None:
        shape = tuple(observation_of(inputs_shape))
        self._observation_shape = shape[1:]
        self.encoder_layer.build(shape)
        previous = self.num_actions + 1
        core_shape: Shape = (None, None, self.encoder_layer.read_size + previous)
        if self.memory_input == "entities":
            _, nodes, features = self.encoder_layer.entities_shape(shape)
            if nodes is None:
                raise InvalidInput(
                    "memory_input='entities' needs a grid of known size; "
                    f"received the shape {shape}"
                )
            # Action and reward become one more entity, of the size of the others.
            self.previous_row = dense(self, "previous_row", features)
            self.previous_row.build((None, previous))
            core_shape = (None, None, nodes + 1, features)
        self.core_layer.build(core_shape)
        features = self.encoder_layer.read_size + self.core_layer.output_size
        for layer in [*self.hidden, self.head]:
            layer.build((None, features))
            features = layer.units

    @property
    def memory_size(self) -> int:
        """M, the size of the memory."""
        return self.core_layer.memory_size

    def initial_memory(self, batch_size: int | Tensor) -> Tensor:
        """The memory at the start of episodes, `(batch_size, M)` float32: zeros, or identities."""
        return ops.cast(self.core_layer.initial_memory(batch_size), self.variable_dtype)

    def reset_memory(self, memory: Tensor, first: Tensor) -> Tensor:
        """The memory `(B, M)` with the initial one where `first`, `(B,)` bool, is true."""
        initial = self.initial_memory(ops.shape(memory)[0])
        return ops.where(ops.cast(first, "bool")[:, None], initial, memory)

    def initial_state(self, batch_size: int | Tensor) -> dict[str, Tensor]:
        """Return the recurrent state at the start of episodes.

        Returns:
            A dict: `memory` `(batch_size, M)`, and the inputs `previous_action` `(batch_size,)`
            int32, which is -1, and `previous_reward` `(batch_size,)` float32, which is 0.
        """
        none = ops.zeros((batch_size,), "int32")
        return {
            "memory": self.initial_memory(batch_size),
            "previous_action": none - 1,
            "previous_reward": ops.cast(none, "float32"),
        }

    def next_state(
        self, memory: Tensor, action: Tensor, reward: Tensor, over: Tensor
    ) -> dict[str, Tensor]:
        """Return the recurrent state after a step: the initial one where an episode is over.

        Args:
            memory: `(B, M)` as `call` returned it.
            action: `(B,)` int32 actions taken.
            reward: `(B,)` float32 rewards received.
            over: `(B,)` bool, the episode has ended.
        """
        over = ops.cast(over, "bool")
        return {
            "memory": self.reset_memory(memory, over),
            "previous_action": ops.where(over, -1, action),
            "previous_reward": ops.where(over, 0.0, reward),
        }

    def call(
        self,
        inputs: dict[str, Tensor],
        memory: Tensor | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
        return_gates: bool = False,
        removed: Tensor | None = None,
    ) -> tuple[Any, ...]:
        check_steps(inputs, memory, None, 1, self._observation_shape, self.memory_size)
        sequences = {name: ops.expand_dims(value, 1) for name, value in inputs.items()}
        results = self._go_through(
            sequences, memory, None, training, return_attention_scores, return_gates, removed
        )
        return keras.tree.map_structure(lambda result: ops.squeeze(result, 1), results)

    def unroll(
        self,
        inputs: dict[str, Tensor],
        memory: Tensor | None = None,
        first: Tensor | None = None,
        training: bool = False,
        return_attention_scores: bool = False,
        return_gates: bool = False,
    ) -> tuple[Any, ...]:
        """Goes through sequences, with the numbers of one `call` a step, and sooner.

        Args:
            inputs: those of `call` with a time axis of known length: `(B, T, ...)`, `(B, T)` and
                `(B, T)`.
            memory: `(B, M)`, before the first step; the initial one, if left out.
            first: `(B, T)` bool, true for the first step of an episode: memory, action and reward
                from before it do not count. None is, if left out.
            training: whether to apply dropout.
            return_attention_scores: whether to return the attention as well.
            return_gates: whether to return the gates as well.

        Returns:
            Q values `(B, T, A)` and the memory after every step `(B, T, M)`; then, if asked for,
            attention and gates as of `call`, with the time as second axis.

        Raises:
            InvalidInput: as `call`, or where T is not known, or 0.

        Example:

        >>> model = RecurrentQNetwork.from_preset("lstm-dense", num_actions=2)
        >>> sequences = {"observation": keras.ops.ones((3, 9, 4)),
        ...              "previous_action": keras.ops.zeros((3, 9), "int32"),
        ...              "previous_reward": keras.ops.ones((3, 9))}
        >>> q, memories = model.unroll(sequences, model.initial_memory(3))
        >>> tuple(q.shape), tuple(memories.shape)
        ((3, 9, 2), (3, 9, 128))
        """
        check_arrays(inputs, memory, first)
        if not self.built:
            self.build({"observation": (None, *inputs["observation"].shape[2:])})
        check_steps(inputs, memory, first, 2, self._observation_shape, self.memory_size)
        return self._go_through(
            inputs, memory, first, training, return_attention_scores, return_gates
        )

    def _go_through(
        self, inputs, memory, first, training, want_attention, want_gates, removed=None
    ):
        """Q values, memories and what else is wanted, of sequences."""
        observation = inputs["observation"]
        times = observation.shape[1]
        views = ops.reshape(observation, (-1, *observation.shape[2:]))  # all in one batch
        vector, entities, attention = self.encoder_layer(
            views,
            training=training,
            every_entity=want_attention or self.previous_row is not None,
            removed=removed,
        )
        vector = split_time(vector, times)
        previous = self._previous(inputs, first)
        fed, seen = self._memory_inputs(views, removed, vector, entities, previous)
        if memory is None:
            memory = self.initial_memory(ops.shape(observation)[0])
        outputs, memories, scores, gates = self.core_layer(
            fed, memory, first, seen, look=want_attention or want_gates
        )
        x = ops.concatenate([vector, outputs], axis=-1)
        for layer in (*self.hidden, self.head):
            x = dense_on_rows(layer, x)
        results = [dueling_values(x) if self.dueling else x]
        results.append(ops.cast(memories, self.variable_dtype))
        if want_attention:
            rounds = {name: split_time(score, times) for name, score in attention.items()}
            results.append({**rounds, **scores})
        if want_gates:
            results.append(gates)
        return tuple(results)

    def _previous(self, inputs, first):
        """The action before as a one-hot, and its reward, `(B, T, A + 1)`."""
        action, reward = inputs["previous_action"], inputs["previous_reward"]
        if first is not None:
            action = ops.where(first, -1, action)
            reward = ops.where(first, 0.0, reward)
        action = ops.one_hot(action, self.num_actions, dtype=self.compute_dtype)  # zeros for -1
        return ops.concatenate([action, ops.cast(reward, action.dtype)[..., None]], axis=-1)

    def _memory_inputs(self, views, removed, vector, entities, previous):
        """What the memory is fed with at every step, and which rows of it are seen, or None."""
        if self.previous_row is None:
            return ops.concatenate([vector, previous], axis=-1), None
        times = previous.shape[1]
        seen = self.encoder_layer.seen(views, removed)
        if seen is not None:
            # Rows out of sight are not attended to; the gates read all rows, so they are zeros.
            entities = entities * ops.cast(seen, entities.dtype)[..., None]
            seen = split_time(seen, times)
            seen = ops.concatenate([seen, ops.ones_like(seen[..., :1])], axis=-1)
        row = dense_on_rows(self.previous_row, previous)[:, :, None]
        return ops.concatenate([split_time(entities, times), row], axis=2), seen

    @classmethod
    def from_preset(  # type: ignore[override]  # what an observation holds comes second
        cls, name: str | os.PathLike, preprocessor: Any = None, **overrides: Any
    ) -> Self:
        """A network with one of our configurations, and new weights; or a trained one.

        Args:
            name, preprocessor, **overrides: as in `RelationalQNetwork.from_preset`; the numbers are
                in `rrl_tf.models.recurrent_presets`.

        Raises:
            InvalidInput: for an unknown name; it lists the known ones.

        Example:

        >>> model = RecurrentQNetwork.from_preset("lstm", core_arguments={"units": 32})
        >>> model.memory_size
        64
        """
        is_new = str(name) in RECURRENT_Q_NETWORK
        config = preset_config(RECURRENT_Q_NETWORK, str(name), overrides) if is_new else {}
        if config.get("encoder") == "relational":
            given = optional_dict("encoder_arguments", config["encoder_arguments"]) or {}
            settled = with_preprocessor(preprocessor, given)
            overrides = {**overrides, "encoder_arguments": settled}
        return super().from_preset(name, **overrides)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_actions": self.num_actions,
            "core": self.core,
            "core_arguments": dict(self.core_arguments),
            "encoder": self.encoder,
            "encoder_arguments": dict(self.encoder_arguments),
            "memory_input": self.memory_input,
            "hidden_units": self.hidden_units,
            "dueling": self.dueling,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "head_initializer": keras.initializers.serialize(self.head_initializer),
            "hidden_activation": self.hidden_activation,
        }
