"""What this device keeps: entry points of the group ``tuner.commands`` that list it, delete it, and forget a task."""
