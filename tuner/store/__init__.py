"""Outputs of the frozen prefix, kept on disk: computed once per sample, shared by every trial. No tensor library."""
