"""Names of the random changes that keep a sample's label, and the kinds of samples that each suits."""

from collections.abc import Iterable

from tuner.errors import StoreError, nearest

GEOMETRIC = frozenset({"crop", "flip", "shift"})
#: A crop of pixels that is enlarged to their size by interpolation: what ``crop`` is where inputs change, not maps.
RESIZED_CROP = "resized-crop"
#: For signals [C, T]: these move values along time, and so act on inputs and on stored maps alike.
TEMPORAL = frozenset({"pool", "shift"})
#: For signals too, but these change the values themselves, which a prefix does not carry through.
INPUT_ONLY = frozenset({"drift", "noise"})
_COLOURS = {"brightness", "color", "colour", "contrast", "grayscale", "hue", "saturation"}
PHOTOMETRIC = frozenset({"blur", "jitter", "noise", "sharpness"} | _COLOURS)


def active_operations(ops: Iterable[str], *, cached: bool) -> frozenset[str]:
    """Return those of a task's operations that act: all on inputs, none of `INPUT_ONLY` on stored maps."""
    return frozenset(ops) - INPUT_ONLY if cached else frozenset(ops)


def of_inputs(ops: frozenset[str]) -> frozenset[str]:
    """Return a task's operations as they act on the model's inputs."""
    return frozenset(RESIZED_CROP if op == "crop" else op for op in ops)


def check_operations(ops: frozenset[str]) -> None:
    """Raise a StoreError for operations that pictures and their maps cannot take."""
    for op in sorted(ops - GEOMETRIC):
        if op in PHOTOMETRIC:
            raise StoreError(
                f"{op!r} changes values of pixels, and stored features cannot be changed in the same way, only moved: "
                "use flip, crop or shift"
            )
        raise StoreError(f"no augmentation {op!r}{nearest(op, GEOMETRIC)}; there are crop, flip and shift")


def check_signal_operations(ops: frozenset[str]) -> None:
    """Raise a StoreError for operations that signals cannot take."""
    suitable = TEMPORAL | INPUT_ONLY
    for op in sorted(ops - suitable):
        if op in GEOMETRIC | PHOTOMETRIC:
            raise StoreError(
                f"a signal [C, T] can be shifted in time, not changed by {op}: use drift, noise, pool or shift"
            )
        raise StoreError(f"no augmentation {op!r}{nearest(op, suitable)}; signals have drift, noise, pool and shift")
