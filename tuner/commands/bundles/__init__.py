"""Bundles: made, looked at, used."""
