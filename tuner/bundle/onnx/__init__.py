"""ONNX files of bundles, checked by their bytes."""
