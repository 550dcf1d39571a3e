"""Named configurations of `RecurrentQNetwork`; see `presets` for those of the other models."""

from __future__ import annotations

from rrl_tf.models.presets import RELATIONAL_Q_NETWORK, Preset

_SLOTS = {"mem_slots": 4, "head_size": 16, "num_heads": 2}
# A memory that forgets less in the beginning has more to be learned from.
_RELATIONAL = {"core": "relational_memory", "core_arguments": {**_SLOTS, "forget_bias": 2.0}}
_MEMORIES = {
    "relational-memory-entities": (
        "a Relational Memory of 4 slots that attend to the cells in sight, one by one",
        {**_RELATIONAL, "memory_input": "entities"},
    ),
    "relational-memory": (
        "a Relational Memory of 4 slots, fed with one vector a step",
        _RELATIONAL,
    ),
    "relational-memory-long": (
        "a Relational Memory of 4 slots, fed with one vector a step, whose units begin to forget "
        "after up to 40 steps",
        {**_RELATIONAL, "core_arguments": {**_SLOTS, "time_scale": 40}},
    ),
    "lstm": ("an LSTM of 64 units", {"core": "lstm", "core_arguments": {"units": 64}}),
    "lstm-long": (
        "an LSTM of 64 units that begin to forget after up to 40 steps",
        {"core": "lstm", "core_arguments": {"units": 64, "time_scale": 40}},
    ),
    "window": (
        "a causal transformer over the last 16 steps",
        {"core": "window", "core_arguments": {"context_length": 16, "width": 64}},
    ),
    "none": (
        "no memory but a dense layer, to compare with",
        {"core": "none", "core_arguments": {"units": 64}},
    ),
}


def _recurrent_q_networks():
    """Every memory behind both encoders; only the relational one has entities to attend to."""
    grid = RELATIONAL_Q_NETWORK["fast"]["config"]
    names = ("conv_filters", "position_embedding", "block", "num_rounds")
    relational = {name: grid[name] for name in names}
    dense = ("Two dense layers", "dense", {"hidden_units": (64, 32)})
    cell = ("The cells and relations of `fast`", "relational", relational)
    # What is to be remembered is learned far later from what comes to the agent's cell than from
    # the largest of every feature over the cells: benchmarks/reproductions/which_way.py.
    most = (
        "The cells and relations of `fast`, the largest of each feature read",
        "relational",
        {**relational, "readout": "max"},
    )
    return {
        f"{name}{suffix}": {
            "description": f"{view}, and {memory}.",
            "source": "rrl_tf; sizes as in Kapturowski et al. (2019) scaled down to small grids",
            "config": {
                "num_actions": 5,
                "encoder": encoder,
                "encoder_arguments": arguments,
                "hidden_units": (64,),
                **core,
            },
        }
        for name, (memory, core) in _MEMORIES.items()
        for suffix, (view, encoder, arguments) in (
            ("", most if name.endswith("-long") else cell),
            ("-dense", dense),
        )
        if encoder == "relational" or "memory_input" not in core
    }


RECURRENT_Q_NETWORK: dict[str, Preset] = _recurrent_q_networks()
