"""What a model consists of, and what a plan would cost on this device."""
