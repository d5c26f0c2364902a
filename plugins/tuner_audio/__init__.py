"""Sounds: tasks and bundles of kind ``audio``, whose samples are log-mel patches, and YAMNet to begin with.

The kind is an entry point of the group ``tuner.input_kinds``, which a device loads without the other plugins.
"""

from tuner_audio.bands import log_mel, read_clip

__all__ = ["log_mel", "read_clip"]
