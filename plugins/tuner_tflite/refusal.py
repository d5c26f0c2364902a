"""What cannot be written as TFLite."""

from tuner.errors import BundleError


class RefusedError(BundleError):
    """An operator, or one with some settings, is not written.

    Attributes:
        what: Its name, and the settings.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"--tflite does not write {what}: export without --tflite and run the ONNX model, or take another network "
            "(docs/tflite.md has those that were tried)"
        )
        self.what = what


def refused(what: str) -> RefusedError:
    """Return the error for an operator, or one with such settings."""
    return RefusedError(what)
