"""Our networks and training steps in PyTorch, for comparisons."""
