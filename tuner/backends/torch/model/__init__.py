"""A model as PyTorch modules: built, given its weights and its head, cut into blocks."""
