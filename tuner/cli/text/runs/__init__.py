"""Runs as text."""
