"""Task files: read, checked, and turned into a task."""
