"""From a PyTorch model to an nn module."""
