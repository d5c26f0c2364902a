"""Train a bundle again on the device."""
