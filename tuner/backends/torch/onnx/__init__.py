"""ONNX files: whole models for inference, in float32 or in 8 bits, and training steps."""
