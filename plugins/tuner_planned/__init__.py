"""Training steps in planned memory: the entry point of the group ``tuner.steps`` that the PyTorch backend runs by."""
