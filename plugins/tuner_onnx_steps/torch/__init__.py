"""A traced step as an ONNX file that the ordinary onnxruntime trains with."""
