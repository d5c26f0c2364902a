"""The page of a bundle, for browsers on this device: an entry point of the group ``tuner.commands``."""
