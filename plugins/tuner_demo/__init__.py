"""A demonstration on digits that come with scikit-learn: an entry point of the group ``tuner.commands``."""
