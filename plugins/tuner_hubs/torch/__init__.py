"""Models that libraries publish, built on PyTorch, and how their inputs are prepared."""
