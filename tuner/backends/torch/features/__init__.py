"""The frozen prefix's outputs: computed, stored and read."""
