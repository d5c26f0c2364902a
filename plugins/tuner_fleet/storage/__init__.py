"""Optuna's storages of a shared study, which wait where the database does not answer."""
