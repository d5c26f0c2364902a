"""The name to install this package by, which is not the one to import: ``device-tuner``, and ``tuner``."""

#: Name of the distribution. Another project owns the name ``tuner`` on the package index.
NAME = "device-tuner"


def installed_version() -> str:
    """Return the version that is installed."""
    from importlib.metadata import version  # imports much that a process which only predicts does without

    return version(NAME)


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from the package index and from a checkout."""
    return f'pip install "{NAME}[{extra}]", or in a checkout: pip install ".[{extra}]"'
