"""Training, whatever runs its steps: the order of samples, the learning rate, the epochs. Numpy and the plan alone."""
