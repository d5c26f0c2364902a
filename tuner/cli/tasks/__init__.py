"""Commands about tasks and models."""
