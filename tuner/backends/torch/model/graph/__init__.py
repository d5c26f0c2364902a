"""A model's operators: traced, and grouped into blocks."""
