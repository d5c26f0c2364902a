"""Plans to try first."""
