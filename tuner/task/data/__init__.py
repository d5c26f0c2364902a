"""Samples of a task: images, arrays, signals and recordings, read when asked for."""
