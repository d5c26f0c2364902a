"""NNTrainer's model files, and the memory of training their networks."""
