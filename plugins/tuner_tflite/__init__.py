"""Bundles as TFLite files, in float32 or in int8: what ``tuner export --tflite`` writes.

The writer is an entry point of the group ``tuner.questions``; LiteRT is imported when a file is written.
"""
