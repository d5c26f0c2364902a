"""What is on this device of the hub that models are published on; the rest is fetched only where the user asks for it.

`tuner.distribution.FETCH` is how the user asks.
"""

from collections.abc import Collection
from functools import cache

from tuner.distribution import FETCH, may_fetch
from tuner.errors import TaskError
from tuner.task import ModelSpec

#: Files of weights on the hub.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def require_here(spec: ModelSpec, hub: str, files: Collection[str]) -> None:
    """Keep the hub's library from the network unless the user asks for it, and then require that some file is here."""
    from huggingface_hub import constants, try_to_load_from_cache

    constants.HF_HUB_OFFLINE = _hub_is_off() or not may_fetch()
    here = any(isinstance(try_to_load_from_cache(hub, file), str) for file in files)
    if constants.HF_HUB_OFFLINE and not here:
        raise not_here(spec)


@cache
def _hub_is_off() -> bool:
    """Return whether the user keeps the hub's library from the network, as it was before this module changed that."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def not_here(spec: ModelSpec) -> TaskError:
    """Return the refusal to fetch a model that is not on this device."""
    return TaskError(
        f"model.factory: {spec.factory} is not on this device, and nothing is fetched unasked: add --fetch to tuner "
        f"run once, or set {FETCH}=1 for any command, which downloads it; or give a file as model.weights, or a folder"
    )
