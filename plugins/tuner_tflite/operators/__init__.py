"""The operators of ONNX as those of TFLite."""
