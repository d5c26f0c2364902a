"""Side heads: built, trained, calibrated and scored."""
