"""The memory of a training step: lifetimes of its tensors, and their places in one pool."""
