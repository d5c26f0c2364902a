"""Opening a model: factory, weights, libraries."""
