"""The exported folder: its format, its rounds of training, and the replay it brings along."""
