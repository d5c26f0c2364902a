"""The commands, one use case per file; the command line and Python call the same functions."""
