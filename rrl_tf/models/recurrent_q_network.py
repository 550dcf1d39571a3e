"""Define `RecurrentQNetwork`, a Q network with a memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
from keras import ops

from rrl_tf._arguments import one_of, optional_dict, positive_int, positive_ints
from rrl_tf._typing import Initializer, Shape, Tensor
from rrl_tf.errors import InvalidInput
from rrl_tf.layers.base import dense_on_rows, make_dense, same_shape
from rrl_tf.models import _memory_cores as cores
from rrl_tf.models._memory_cores import split_time
from rrl_tf.models.architectures import RECURRENT_Q_NETWORK
from rrl_tf.models.base import (
    BaseModel,
    architecture_config,
    build_in_turn,
    make_layer,
    make_q_head,
    one_hot,
    q_values,
)
from rrl_tf.models.encoders import ENCODERS, encoders_of
from rrl_tf.models.relational_q_network import with_preprocessor

INPUTS = ("observation", "previous_action", "previous_reward")
CORES = {
    "relational_memory": cores.RelationalMemoryCore,
    "lstm": cores.LSTMCore,
    "window": cores.WindowCore,
    "none": cores.NoMemoryCore,
}
MEMORY_INPUTS = ("vector", "entities")
ACTIVATIONS = ("relu", "leaky_relu", "elu", "gelu", "silu", "tanh")


@keras.saving.register_keras_serializable(package="rrl_tf")
class RecurrentQNetwork(BaseModel, architectures=RECURRENT_Q_NETWORK):
    """Compute Q values from the current observation and a memory of earlier steps.

    An encoder embeds the observation. The embedding, the previous action and the previous reward
    are the inputs of a recurrent core. A dense network maps the embedding and the output of the
    core to the Q values. With `memory_input="entities"`, the slots of a Relational Memory attend to
    the entities of the encoder and to one additional entity for the previous action and reward.

    The memory, `(B, M)` float32, is an argument and a result, and the whole state between two
    steps. A network without memory has M = 0. `call` computes one step and `unroll` a sequence.
    Both return the same numbers.

    Args:
        num_actions: A, the number of actions.
        core: `"relational_memory"`, `"lstm"`, `"window"` (a causal transformer over the last
            steps), or `"none"`.
        core_arguments: dict of arguments of the core:

            - `"relational_memory"`: arguments of `RelationalMemoryCell`, and `time_scale`;
            - `"lstm"`: `units` and `time_scale`;
            - `"window"`: the number of steps `context_length`, `width`, `num_blocks` and arguments
              of `CausalTransformerBlock`;
            - `"none"`: `units` of the dense layer that replaces the memory.

            `time_scale` is the largest number of steps that units remember before training (Tallec
            and Ollivier, 2018). All cores have `unroll`: whether to unroll the loop over a
            sequence. A Relational Memory does not by default, because a loop is traced ten times
            faster. The other cores do, because a loop would cost more than their small steps.
        encoder: `"relational"` for a grid `(height, width, F)`; `"dense"` for an observation of
            any shape, which is flattened; or `"multi_input"` for a dict of observations.
        encoder_arguments: dict of arguments of the encoder: those of `RelationalQNetwork` from
            `conv_filters` to `readout_cell`, or of `rrl_tf.models.encoders`.
        memory_input: input of a Relational Memory: `"vector"`, the encoder's readout, or
            `"entities"`, the encoder's entities. The other cores support `"vector"` only.
        hidden_units: sizes of the dense layers after the memory.
        dueling: whether the Q values are `V + A - mean(A)`, from the value of the state and the
            advantages of the actions (Wang et al., 2016).
        kernel_initializer: initialiser of the matrices outside the encoder and the core.
        head_initializer: initialiser of the last matrix. With `"zeros"`, all Q values are 0 before
            training.
        hidden_activation: activation of the layers after the memory: `"relu"`, `"leaky_relu"`,
            `"elu"`, `"gelu"`, `"silu"` or `"tanh"`. If rewards are rare, all ReLUs may become
            inactive in most states. These states then have the same Q values and no gradient.
            `"leaky_relu"` always has a gradient (Maas et al., 2013).

    Call arguments:
        inputs: dict of `"observation"` `(B, ...)`, preprocessed, or a dict of such arrays;
            `"previous_action"` `(B,)` int, -1 at the start of an episode; `"previous_reward"`
            `(B,)`.
        memory: `(B, M)`, from `initial_memory` or the previous call. `None` means the initial
            memory.
        training: whether to apply dropout.
        return_attention_scores: whether to return the attention as well.
        return_gates: whether to return the gates as well.
        removed: `(B, N)` bool, true for entities of a relational encoder that no entity attends to.
            `None` means that no entities are removed.

    Returns:
        A tuple of

        - the Q values `(B, A)`, float32 also under a mixed-precision policy;
        - the next memory `(B, M)`;
        - with `return_attention_scores`, a dict name -> attention `(B, H, N, S)`. `"round_1"`,
          `"round_2"`, ... are the rounds of the encoder, and `"block_1"`, ... are the blocks of the
          memory. Rows and columns of the latter are the slots, followed by the inputs of the
          memory, or the K steps of a window, the oldest first;
        - with `return_gates`, a dict name -> gates between 0 and 1, `(B, mem_slots, units)` or, for
          an LSTM, `(B, units)`. The names are `"input"`, `"forget"` and, for an LSTM, `"output"`.

    Raises:
        InvalidInput: for an argument out of its range, for inputs with wrong keys, shapes or
            dtypes, or for a memory with a wrong shape.

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

    _default_save_signature = None  # keeps exports from tracing a call with the shapes of `build`
    _integer_inputs = ("previous_action",)

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
        self.core_arguments = optional_dict("core_arguments", core_arguments, {})
        self.encoder = one_of("encoder", encoder, tuple(ENCODERS))
        self.encoder_arguments = optional_dict("encoder_arguments", encoder_arguments, {})
        self.memory_input = one_of("memory_input", memory_input, MEMORY_INPUTS)
        if memory_input == "entities" and (core, encoder) != ("relational_memory", "relational"):
            raise InvalidInput(
                "`memory_input` must be 'vector' unless core='relational_memory' and "
                f"encoder='relational'; received 'entities', core={core!r} and encoder={encoder!r}"
            )
        self.hidden_units = positive_ints("hidden_units", hidden_units)
        self.dueling = dueling
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.head_initializer = keras.initializers.get(head_initializer)
        self.hidden_activation = one_of("hidden_activation", hidden_activation, ACTIVATIONS)
        self.encoder_layer = self._part("encoder", ENCODERS[self.encoder], self.encoder_arguments)
        self.core_layer = self._part("core", CORES[self.core], self.core_arguments)
        self.previous_row = None
        self.hidden, self.head = make_q_head(
            self,
            self.num_actions,
            self.hidden_units,
            dueling,
            self.hidden_activation,
            self.head_initializer,
        )

    def _part(self, name, kind, arguments):
        return make_layer(f"{name}_arguments", kind, arguments, dtype=self.dtype_policy, name=name)

    def build(self, inputs_shape: dict[str, Shape]) -> None:
        shape = _observation(inputs_shape)
        shape = shape if isinstance(shape, Mapping) else tuple(shape)
        self._observation_shapes = {name: each[1:] for name, each in _named(shape).items()}
        self.encoder_layer.build(shape)
        previous = self.num_actions + 1
        core_shape: Shape = (None, None, self.encoder_layer.read_size + previous)
        if self.memory_input == "entities":
            _, nodes, features = self.encoder_layer.entities_shape(shape)
            if nodes is None:
                raise InvalidInput(
                    "memory_input='entities' must have a grid of known size; "
                    f"received the shape {shape}"
                )
            # The previous action and reward become an additional entity.
            self.previous_row = make_dense(self, "previous_row", features, previous)
            core_shape = (None, None, nodes + 1, features)
        self.core_layer.build(core_shape)
        features = self.encoder_layer.read_size + self.core_layer.output_size
        build_in_turn([*self.hidden, self.head], (None, features))

    def _input_specs(self, shapes: Any) -> Any:
        # `unroll` builds the network with the shape of the observation only.
        observation = _observation(shapes)
        parts = _named(observation)
        leading = next(iter(parts.values()))[:1]
        specs = super()._input_specs({**parts, **dict.fromkeys(INPUTS[1:], leading)})
        if isinstance(observation, Mapping):
            specs["observation"] = {name: specs.pop(name) for name in parts}
        return specs

    def _export_signature(self) -> list[Any]:
        memory = keras.InputSpec(self.variable_dtype, (None, self.memory_size), name="memory")
        return [*super()._export_signature(), memory]

    @property
    def memory_size(self) -> int:
        """M, the size of the memory."""
        return self.core_layer.memory_size

    def initial_memory(self, batch_size: int | Tensor) -> Tensor:
        """Return the memory at the start of an episode, `(batch_size, M)`.

        It is the cell's initial memory for a Relational Memory, and zeros for the other cores.
        """
        return ops.cast(self.core_layer.initial_memory(batch_size), self.variable_dtype)

    def reset_memory(self, memory: Tensor, first: Tensor) -> Tensor:
        """Return the memory `(B, M)`, reset to its initial value where `first` `(B,)` is true."""
        initial = self.initial_memory(ops.shape(memory)[0])
        return ops.where(ops.cast(first, "bool")[:, None], initial, memory)

    def initial_state(self, batch_size: int | Tensor) -> dict[str, Tensor]:
        """Return the recurrent state at the start of episodes.

        Returns:
            A dict of `memory` `(batch_size, M)` and the inputs `previous_action` (-1, int32) and
            `previous_reward` (0, float32), both `(batch_size,)`.
        """
        none = ops.zeros((batch_size,), "int32")
        return {
            "memory": self.initial_memory(batch_size),
            "previous_action": none - 1,
            "previous_reward": ops.cast(none, "float32"),
        }

    def next_state(
        self, memory: Tensor, action: Tensor, reward: Tensor, done: Tensor
    ) -> dict[str, Tensor]:
        """Return the recurrent state after a step, or the initial state if the episode is done.

        Args:
            memory: `(B, M)` as `call` returned it.
            action: `(B,)` int32 actions taken.
            reward: `(B,)` float32 rewards received.
            done: `(B,)` bool, whether the episode is done.
        """
        done = ops.cast(done, "bool")
        return {
            "memory": self.reset_memory(memory, done),
            "previous_action": ops.where(done, -1, action),
            "previous_reward": ops.where(done, 0.0, reward),
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
        self._check_inputs(inputs, memory, None, 1)
        sequences = keras.tree.map_structure(lambda x: ops.expand_dims(x, 1), inputs)
        results = self._run(
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
        """Process sequences; this is faster than one `call` per step and returns the same numbers.

        Args:
            inputs: the inputs of `call` with a time axis of known length: `(B, T, ...)`, `(B, T)`
                and `(B, T)`.
            memory: `(B, M)`, the memory before the first step. `None` means the initial memory.
            first: `(B, T)` bool, true for the first step of an episode. Such a step ignores the
                memory, the action and the reward of the previous step. `None` means that no episode
                starts within the sequences.
            training: whether to apply dropout.
            return_attention_scores: whether to return the attention as well.
            return_gates: whether to return the gates as well.

        Returns:
            A tuple of Q values `(B, T, A)`, the memory after every step `(B, T, M)`, and optionally
            attention and gates as in `call`, with time as the second axis.

        Raises:
            InvalidInput: as for `call`, or if T is unknown or 0.

        Example:

        >>> model = RecurrentQNetwork.from_preset("lstm-dense", num_actions=2)
        >>> sequences = {"observation": keras.ops.ones((3, 9, 4)),
        ...              "previous_action": keras.ops.zeros((3, 9), "int32"),
        ...              "previous_reward": keras.ops.ones((3, 9))}
        >>> q, memories = model.unroll(sequences, model.initial_memory(3))
        >>> tuple(q.shape), tuple(memories.shape)
        ((3, 9, 2), (3, 9, 128))
        """
        if not self.built:
            observation = _observation(inputs)
            if not all(hasattr(each, "shape") for each in _named(observation).values()):
                raise InvalidInput(
                    f"`observation` must be an array; received {type(observation).__name__}"
                )
            shape = keras.tree.map_structure(lambda x: (None, *x.shape[2:]), observation)
            self.build({"observation": shape})
        self._check_inputs(inputs, memory, first, 2)
        return self._run(inputs, memory, first, training, return_attention_scores, return_gates)

    def _check_inputs(self, inputs, memory, first, num_axes):
        """Raise an `InvalidInput` for wrong inputs; `num_axes` is 1 for `(B, ...)`, 2 with time."""
        parts = _named(_observation(inputs))
        if inputs.keys() != set(INPUTS):
            raise _not_the_inputs(inputs)
        if parts.keys() != self._observation_shapes.keys():
            raise InvalidInput(
                f"`observation` must have the parts {sorted(self._observation_shapes)}; received "
                f"{sorted(parts)}"
            )
        leading = tuple(getattr(next(iter(parts.values())), "shape", ())[:num_axes])
        shapes = self._observation_shapes
        checks = [(name, part, (*leading, *shapes[name])) for name, part in parts.items()]
        checks += [(name, inputs[name], leading) for name in INPUTS[1:]]
        optional = (("memory", memory, (*leading[:1], self.memory_size)), ("first", first, leading))
        for name, value, expected in [*checks, *(each for each in optional if each[1] is not None)]:
            shape = getattr(value, "shape", None)
            if shape is None or not same_shape(shape, expected):
                received = type(value).__name__ if shape is None else f"the shape {tuple(shape)}"
                raise InvalidInput(
                    f"`{name}` must be an array of the shape {expected}, which this network needs "
                    f"for this batch; received {received}"
                )
        dtype = keras.backend.standardize_dtype(inputs["previous_action"].dtype)
        if not keras.backend.is_int_dtype(dtype):  # a cast could change the action
            raise InvalidInput(f"`previous_action` must be integers; received the dtype {dtype}")
        if num_axes == 2 and not leading[1]:
            raise InvalidInput(
                "`unroll` must have a known number of steps T, at least one; "
                f"received inputs of the shape {leading}"
            )

    def _run(self, inputs, memory, first, training, return_attention, return_gates, removed=None):
        """Return the results of `unroll`; `call` uses it for sequences of one step."""
        batch, times = ops.shape(inputs["previous_action"])
        views = keras.tree.map_structure(  # all in one batch
            lambda x: ops.reshape(x, (-1, *x.shape[2:])), inputs["observation"]
        )
        vector, entities, attention = self.encoder_layer(
            views,
            training=training,
            every_entity=return_attention or self.previous_row is not None,
            removed=removed,
        )
        vector = split_time(vector, times)
        previous = self._previous(inputs, first)
        memory_inputs, visible = self._memory_inputs(views, removed, vector, entities, previous)
        if memory is None:
            memory = self.initial_memory(batch)
        outputs, memories, scores, gates = self.core_layer(
            memory_inputs, memory, first, visible, return_details=return_attention or return_gates
        )
        x = ops.concatenate([vector, outputs], axis=-1)
        q = q_values([*self.hidden, self.head], x, self.dueling)
        results = [q, ops.cast(memories, self.variable_dtype)]
        if return_attention:
            rounds = {name: split_time(score, times) for name, score in attention.items()}
            results.append({**rounds, **scores})
        if return_gates:
            results.append(gates)
        return tuple(results)

    def _previous(self, inputs, first):
        """Return the one-hot previous action and the previous reward, `(B, T, A + 1)`."""
        action, reward = inputs["previous_action"], inputs["previous_reward"]
        if first is not None:
            action = ops.where(first, -1, action)
            reward = ops.where(first, 0.0, reward)
        action = one_hot(action, self.num_actions, self.compute_dtype)
        return ops.concatenate([action, ops.cast(reward, action.dtype)[..., None]], axis=-1)

    def _memory_inputs(self, views, removed, vector, entities, previous):
        """Return the inputs of the memory, and the mask of their visible rows (None for all)."""
        if self.previous_row is None:
            return ops.concatenate([vector, previous], axis=-1), None
        times = previous.shape[1]
        visible = self.encoder_layer.visible(views, removed)
        if visible is not None:
            # Invisible rows are set to 0: they get no attention, but the gates read all rows.
            entities = entities * ops.cast(visible, entities.dtype)[..., None]
            visible = split_time(visible, times)
            visible = ops.concatenate([visible, ops.ones_like(visible[..., :1])], axis=-1)
        row = dense_on_rows(self.previous_row, previous)[:, :, None]
        return ops.concatenate([split_time(entities, times), row], axis=2), visible

    @classmethod
    def from_preset(  # type: ignore[override]  # the preprocessor comes second
        cls,
        name: str | os.PathLike,
        preprocessor: Any = None,
        load_weights: bool | None = None,
        **overrides: Any,
    ) -> Self:
        """Return a named architecture with new weights, or a pretrained model.

        Args:
            name, load_weights, **overrides: as in `RelationalQNetwork.from_preset`.
            preprocessor: as there. It sets arguments of a relational encoder. If it returns a dict,
                the network has the encoders of `encoders_of`, relational ones for grids if the
                architecture has one.

        Raises:
            InvalidInput: if the name is unknown; the message lists the known names.

        Example:

        >>> model = RecurrentQNetwork.from_preset("lstm", core_arguments={"units": 32})
        >>> model.memory_size
        64
        """
        if str(name) in RECURRENT_Q_NETWORK:
            config = architecture_config(RECURRENT_Q_NETWORK, str(name), overrides)
            if getattr(preprocessor, "parts", None) and not load_weights:
                grids = "fast" if config["encoder"] == "relational" else "dense"
                given = optional_dict("encoder_arguments", overrides.get("encoder_arguments"), {})
                arguments = {"encoders": encoders_of(preprocessor, grids, **given)}
                return cls(**{**config, "encoder": "multi_input", "encoder_arguments": arguments})
            if config["encoder"] == "relational":
                given = optional_dict("encoder_arguments", config["encoder_arguments"], {})
                arguments = with_preprocessor(preprocessor, given)
                overrides = {**overrides, "encoder_arguments": arguments}
        return super().from_preset(name, load_weights, **overrides)


def _observation(inputs):
    """Return the entry `"observation"` of a dict of inputs or of shapes."""
    if not isinstance(inputs, Mapping) or "observation" not in inputs:
        raise _not_the_inputs(inputs)
    return inputs["observation"]


def _named(observation):
    """Return a dict of observations as it is, and one observation as a dict."""
    return observation if isinstance(observation, Mapping) else {"observation": observation}


def _not_the_inputs(inputs):
    received = sorted(inputs, key=str) if isinstance(inputs, Mapping) else type(inputs)
    return InvalidInput(f"`inputs` must be a dict of {INPUTS}; received {received}")
