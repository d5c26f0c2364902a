"""Objectives, the Pareto front, and what is alike."""
