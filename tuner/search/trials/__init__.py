"""Trials: their queue, and Optuna's journal."""
