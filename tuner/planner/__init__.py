"""Cost of a plan before anything runs, without a tensor library."""
