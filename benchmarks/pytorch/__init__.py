"""What ours is compared with, written in PyTorch as one would write it there."""
