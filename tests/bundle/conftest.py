"""Bundles made by hand, for the tests of what a bundle holds."""

from tests.bundle.handmade import make, pointing, sample

__all__ = ["make", "pointing", "sample"]
