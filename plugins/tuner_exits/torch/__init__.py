"""Side heads on PyTorch: what trains and exports plans that have exits, an entry point of the group `tuner.heads`."""

from tuner_exits.torch.procedure import ExitsProcedure
from tuner_exits.torch.segments import export
from tuner_exits.torch.start import starts

__all__ = ["ExitsProcedure", "export", "starts"]
