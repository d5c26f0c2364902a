"""For authors of plugins."""
