"""A bundle's plan on another task's data: what was found on one device is trained on the next."""
