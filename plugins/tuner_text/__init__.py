"""Texts: tasks and bundles of kind ``text``, whose samples are means of static embeddings, and a small network.

The kind is an entry point of the group ``tuner.input_kinds``, which a device loads without the other plugins.
"""

#: Environment variable that names the folder of another encoder; the option ``--encoder`` sets it for one command.
VARIABLE = "TUNER_TEXT_ENCODER"
#: Package whose encoder is used where none is named.
PACKAGE = "wordllama"
