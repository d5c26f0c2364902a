"""Bundles and models in service as text."""
