"""ONNX Runtime sessions: inference, and training steps. The base package only."""
