"""NNTrainer's model files as networks."""
