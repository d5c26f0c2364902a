"""Predict from a bundle."""
