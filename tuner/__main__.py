"""``python -m tuner``."""

from tuner.cli.app import main

main()
