"""Optuna's storages of a shared study, which wait where a database does not answer."""
