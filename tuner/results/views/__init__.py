"""What people are shown of a run."""
