"""Analyse trained networks: trace episodes, and test what attention and memory contribute."""

from rrl_tf._lazy import lazy_attributes

_MODULES = {
    "ablation": "ablate play_ablated",
    "attribution": (
        "attention_flow attention_rollout attributions gradient_times_input integrated_gradients "
        "occlusion"
    ),
    "curves": "RemovalCurves removal_curves",
    "effects": "Effects interval",
    "episode": "draw_episode",
    "faithfulness": "Faithfulness measure_faithfulness",
    "memory_swap": "MemorySwap swap_memories",
    "patching": "Patching patch",
    "places": "trace",
    "probes": "Probe probe probe_places untrained",
    "states": "States collect_states",
    "tracing": "PolicyTracer StepTrace",
}

__all__ = sorted(" ".join(_MODULES.values()).split())

__getattr__ = lazy_attributes(__name__, _MODULES)
