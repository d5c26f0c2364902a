"""Finds plugins: those that are installed, and those in indexes, files of entries: ``tuner plugins search``."""
