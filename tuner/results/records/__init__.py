"""What is recorded of a run and of its trials."""
