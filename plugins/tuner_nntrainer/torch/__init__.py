"""Networks of NNTrainer's model files in PyTorch."""

from tuner_nntrainer.torch.network import FileNetwork, from_ini
from tuner_nntrainer.torch.weights import weights_of

__all__ = ["FileNetwork", "from_ini", "weight_bytes"]


def weight_bytes(model: FileNetwork) -> bytes:
    """Return the weights of a network as NNTrainer writes them, and as ``save_path`` reads them."""
    return weights_of(model.by_node())
