"""Labels of the user next to those of the model: entry points of the group ``tuner.commands``."""
