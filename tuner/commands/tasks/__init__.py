"""Tasks and models."""
