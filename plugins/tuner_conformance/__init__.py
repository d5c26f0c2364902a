"""Conformance sets: what any runtime of bundles must compute, one in a browser for instance.

``docs/bundle.md`` specifies them. The commands are an entry point of the group ``tuner.commands``.
"""
