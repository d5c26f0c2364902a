"""Texts: tasks and bundles of kind ``text``, whose samples are means of static embeddings, and a small network.

The kind is an entry point of the group ``tuner.input_kinds``, which a device loads without the other plugins.
"""

from tuner_text.encoder import Encoder, encoder

__all__ = ["Encoder", "encoder"]
