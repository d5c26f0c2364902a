"""What a plan will cost, before anything runs and without a tensor library."""
