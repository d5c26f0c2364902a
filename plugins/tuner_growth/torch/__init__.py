"""Growth on PyTorch."""
