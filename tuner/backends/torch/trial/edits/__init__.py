"""Tails that a plugin changes, and heads that are solved for."""
