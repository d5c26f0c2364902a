"""A run in Optuna's dashboard: an entry point of the group ``tuner.commands``."""
