"""Features as codes."""
