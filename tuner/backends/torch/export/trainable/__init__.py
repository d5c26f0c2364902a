"""Bundles that train on a device."""
