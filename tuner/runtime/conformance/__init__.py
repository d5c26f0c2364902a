"""What every runtime of a bundle must compute from it: a set of inputs and results, and their comparison."""
