"""The user's validation samples that a trained tail has wrong, as small pictures."""

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from tuner.arrays import Array, Floats
from tuner.backends.torch.export.whole import tail_logits
from tuner.backends.torch.features.selection import validation_selections
from tuner.backends.torch.trial.opened import OpenTask
from tuner.plan.trial import TrialPlan
from tuner.task.inputs import input_kind
from tuner_report.misread import Misread

#: As many misread samples are shown.
MOST_MISREAD = 8
#: Pixels of a picture's longer side, and the dimensions of samples that can be one: [channels, height, width].
SIDE, DIMENSIONS = 128, 3


def misread(session: OpenTask, plan: TrialPlan, weights: Path) -> tuple[Misread, ...]:
    """Return local validation samples that a trained plan has wrong, the surest first; at most `MOST_MISREAD`.

    There are none where samples are no pictures, have several labels or none, or leave at exits.
    """
    opened = session.described_by(plan)
    task = opened.task
    windowed = input_kind(task.input.kind).windowed
    is_picture = len(task.input_shape) == DIMENSIONS and task.input_shape[0] in {1, 3} and not windowed
    if plan.heads.exits or not task.counted_classes or not is_picture:
        return ()
    selection = next(one for one in validation_selections(task, plan.data) if one.domain == "local")
    (outputs,), labels = tail_logits(opened, plan, weights, [selection]), selection.labels()
    shares = _softmax(outputs)
    predicted = outputs.argmax(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    surest = wrong[np.argsort(-shares[wrong, predicted[wrong]], kind="stable")][:MOST_MISREAD]
    return tuple(
        Misread(
            truth=int(labels[place]),
            taken_for=int(predicted[place]),
            probability=float(shares[place, predicted[place]]),
            jpeg=_jpeg(selection.samples.load(int(selection.indices[place]))),
            file=selection.samples.whole(int(selection.indices[place])),
            place=int(place),
        )
        for place in surest
    )


def _softmax(outputs: Floats) -> Floats:
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _jpeg(sample: Array) -> str:
    """Return a sample [1 or 3, height, width] as a small JPEG in base64; what is no uint8 is stretched to its range."""
    pixels = sample
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels - low) / max(high - low, 1e-9) * 255).astype(np.uint8)
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    if max(image.size) < SIDE:
        image = image.resize((SIDE, SIDE * image.size[1] // image.size[0]), Image.Resampling.NEAREST)
    image.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    image.convert("RGB").save(content, "JPEG", quality=80)
    return base64.b64encode(content.getvalue()).decode()
