"""A server for assistants, by the Model Context Protocol: an entry point of the group ``tuner.commands``."""
