"""A study that several workers share, in a database, through Optuna's storages."""
