"""The weights file of a trial with exits: the tail, the kept heads, and their calibration."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from tuner.backends.torch.export.whole import trained_weights
from tuner.bundle.info import Section
from tuner.bundle.tensors import open_tensors
from tuner.errors import BundleError
from tuner.files import private_file
from tuner.ridge.sums import Sums
from tuner.runtime.train.calibration import ExitCalibration

#: Key of the calibration in the file's metadata, and the beginning of the names of the heads' weights; of the sums.
METADATA, SUMS = Section.EXITS.value, "sums"


@dataclass(frozen=True, slots=True, eq=False)
class ExitWeights:
    """What a trial with exits leaves: the states of the tail, empty where only exits trained, and of each kept head.

    `sums` are those of global samples that each kept head was solved for with; empty where there are none. Where it
    `ends` with the last kept head, the blocks behind that are of no use.
    """

    tail: dict[str, torch.Tensor]
    heads: tuple[dict[str, torch.Tensor], ...]
    calibration: ExitCalibration
    sums: tuple[dict[str, torch.Tensor], ...] = ()
    ends: bool = False

    def reached(self) -> "ExitWeights":
        """Return the same up to the first exit at which all calibration samples have left; itself where there is none.

        The source's bundles are 4.7 to 25 times smaller so (PersEPhonEE, section 4).
        """
        one = self.calibration
        left = accumulate(one.rates[:-1])
        last = next((at for at, share in enumerate(left) if math.isclose(share, 1.0)), None)
        if last is None:
            return self
        calibration = replace(
            one,
            kept=one.kept[: last + 1],
            thresholds=one.thresholds[:last],
            temperatures=one.temperatures[: last + 1],
            rates=one.rates[: last + 1],
            sweep=(),
        )
        return replace(self, heads=self.heads[: last + 1], calibration=calibration, ends=True)

    @classmethod
    def read(cls, path: Path) -> "ExitWeights":
        """Read what `write_exits` wrote.

        Raises:
            BundleError: The weights are not those of a trial with exits.
        """
        with open_tensors(path) as file:
            metadata = (file.metadata() or {}).get(METADATA)
        if metadata is None:
            raise BundleError(f"{path} holds no exits: export a trial that has some")
        calibration, tensors = ExitCalibration.from_dict(json.loads(metadata)), trained_weights(path)
        of_exits = f"{METADATA}.", f"{SUMS}."
        tail = {name: value for name, value in tensors.items() if not name.startswith(of_exits)}
        heads, sums = (
            [
                {name.removeprefix(begin): value for name, value in tensors.items() if name.startswith(begin)}
                for begin in (f"{kind}.{place}." for place in range(len(calibration.kept)))
            ]
            for kind in (METADATA, SUMS)
        )
        return cls(tail, tuple(heads), calibration, tuple(filter(None, sums)))


def write_exits(
    path: Path,
    tail: Mapping[str, torch.Tensor],
    heads: nn.ModuleList,
    calibration: ExitCalibration,
    metadata: Mapping[str, str],
    sums: Sequence[Sums] = (),
) -> None:
    """Write the tail, the kept heads (``exits.N.…``), the calibration and further metadata into one file.

    Of heads that were solved for with sums of global samples, these too (``sums.N.…``): rounds on a device solve again.
    """
    tensors = {name: value.contiguous() for name, value in tail.items()}
    for place, index in enumerate(calibration.kept):
        state, own = heads[index].state_dict(), sums[index].tensors() if sums else {}
        tensors |= {f"{METADATA}.{place}.{name}": value.contiguous() for name, value in state.items()}
        tensors |= {f"{SUMS}.{place}.{name}": torch.from_numpy(value) for name, value in own.items()}
    tensors = tensors or {"nothing": torch.zeros(1)}  # a file without tensors keeps no metadata
    path.parent.mkdir(parents=True, exist_ok=True)
    with private_file(path) as part:
        save_file(tensors, part, {**metadata, METADATA: json.dumps(asdict(calibration))})
