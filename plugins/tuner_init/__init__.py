"""The command ``tuner init``, which looks at a user's data and writes a task file: of the group ``tuner.commands``."""
