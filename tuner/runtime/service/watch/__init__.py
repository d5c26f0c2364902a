"""Whether a model in use still fits."""
