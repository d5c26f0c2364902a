"""What carries plans out."""
