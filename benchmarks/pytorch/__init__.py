"""The other side of comparisons: our networks and updates in PyTorch."""
