"""Tuning a task."""
