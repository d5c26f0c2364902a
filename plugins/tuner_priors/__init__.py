"""Priors made of runs: plans for `tuner run --prior` to try first, an entry point of the group ``tuner.commands``."""
