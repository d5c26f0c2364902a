"""Studies that several workers share, on one device or on many: in a database, or behind Optuna's proxy.

Sources: Optuna (Akiba et al., 2019), its storages and artifact stores; Ray (Moritz et al., 2018).
"""
