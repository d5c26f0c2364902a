"""What cannot be written as TFLite."""

from tuner.errors import BundleError


def refused(what: str) -> BundleError:
    """Return the error for an operator, or one with such settings."""
    return BundleError(
        f"--tflite does not write {what}: export without --tflite and run the ONNX model, or take another network "
        "(docs/tflite.md has those that were tried)"
    )
