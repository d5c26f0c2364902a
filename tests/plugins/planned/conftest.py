"""The built-in task and its model, as the tests of the backend have them."""

from tests.backends.torch.conftest import loaded, model, pretrained, task

__all__ = ["loaded", "model", "pretrained", "task"]
