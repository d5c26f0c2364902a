"""Weights of a shared study's front, where workers and whoever exports can reach them: Optuna's artifact stores."""
