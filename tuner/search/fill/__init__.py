"""Filling the feature store."""
