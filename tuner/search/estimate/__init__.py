"""What a plan is expected to cost and to bring."""
