"""What the closed-form sums tell of a user's samples: an entry point of the group ``tuner.commands``."""
