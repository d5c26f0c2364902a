"""Bundles made by hand, for the tests of what a device does with a bundle."""

from tests.bundle.handmade import make, pointing, sample

__all__ = ["make", "pointing", "sample"]
