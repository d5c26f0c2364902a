"""The sounds of `benchmarks.alternatives`: ESC-10, and one speaker's digits."""

import csv
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.alternatives.problem import Problem
from benchmarks.lib.places import DATA
from benchmarks.lib.setup import opened_from
from tuner.task import Domain, Task
from tuner_audio.yamnet import Yamnet, yamnet_256

#: Speaker whose digits are personalised to.
SPEAKER = "theo"
#: First recording of a digit by the speaker that is for the test; the ones before are hers to train on.
FIRST_TEST = 13
#: Recordings of a digit by the speaker that are `local.val`.
SPOKEN_VALIDATION = 3
#: First recording of a digit by another speaker that is global validation; those before are for training.
OTHERS_VALIDATION = 20
#: First recording of a digit by another speaker that is for the global test.
OTHERS_TEST = 23
#: Recordings of a digit by a speaker.
RECORDINGS = 25


def listening(outputs: int, weights: str) -> nn.Module:
    """Build YAMNet-256 with a head of zeros: its published weights have none.

    Args:
        outputs: Number of classes.
        weights: File of the weights.
    """
    model = yamnet_256(outputs)
    if not isinstance(model, Yamnet):
        raise TypeError("yamnet_256 builds a Yamnet")
    model.load_state_dict(model.translated(torch.load(weights, weights_only=True)), strict=False)
    nn.init.zeros_(model.get_parameter("head.weight"))
    nn.init.zeros_(model.get_parameter("head.bias"))
    return model


def yamnet_file() -> Path:
    """Return the file of YAMNet's weights."""
    return (DATA / "models" / "yamnet_256_audioset.pth").resolve()


def sounds(seed: int) -> Problem:
    """Return ESC-10: three folds to train on, one of the first four to validate on, the fifth for the test."""
    root, fold = (DATA / "audio" / "esc10").resolve(), seed % 4 + 1
    others = "".join(str(number) for number in range(1, 5) if number != fold)
    task = _from_text(
        f"""
        name = "esc10"
        [model]
        factory = "benchmarks.alternatives.sounds:listening"
        arguments = {{ outputs = 10, weights = "{yamnet_file()}" }}
        [local]
        kind = "audio"
        train = "{root}#[{others}]-*"
        val = "{root}#{fold}-*"
        test = "{root}#5-*"
        [input]
        recording = '^\\d-\\d+'
        [augment]
        ops = ["time-shift", "time-mask", "frequency-mask"]
        """
    )
    if task.local.test is None:
        raise ValueError("ESC-10 has a fifth fold")
    return Problem(replace(task, local=Domain(task.local.train, task.local.val)), task.local.test, whole=True)


def spoken(seed: int) -> Problem:
    """Return one speaker's digits, on a network whose head has learnt those of five others."""
    root = (DATA / "more" / "spoken").resolve()
    mine = np.random.default_rng(seed).permutation(FIRST_TEST)
    numbers: dict[str, Sequence[int]] = {
        "train": [int(number) for number in mine[SPOKEN_VALIDATION:]],
        "val": [int(number) for number in mine[:SPOKEN_VALIDATION]],
        "test": range(FIRST_TEST, RECORDINGS),
    }
    known: dict[str, Sequence[int]] = {
        "train": range(OTHERS_VALIDATION),
        "val": range(OTHERS_VALIDATION, OTHERS_TEST),
        "test": range(OTHERS_TEST, RECORDINGS),
    }
    others = sorted(path.name for path in root.iterdir() if path.name != SPEAKER)
    with tempfile.TemporaryDirectory() as folder:

        def listed(domain: str, parts: Mapping[str, Sequence[int]], speakers: Sequence[str]) -> str:
            for part, chosen in parts.items():
                with (Path(folder) / f"{domain}-{part}.csv").open("w", encoding="utf-8", newline="") as file:
                    rows = csv.writer(file)
                    rows.writerow(("path", "label"))
                    rows.writerows(
                        (root / who / f"{digit}_{who}_{number}.wav", digit)
                        for who in speakers for digit in range(10) for number in chosen
                    )  # fmt: skip
            return "\n".join(f'{part} = "{folder}/{domain}-{part}.csv"' for part in parts)

        task = _from_text(
            f"""
            name = "spoken"
            [model]
            factory = "tuner_audio.yamnet:yamnet_256"
            arguments = {{ outputs = 10 }}
            weights = "{yamnet_file()}"
            pretrain = {{ epochs = 30, learning_rate = 3e-3 }}
            [global]
            kind = "audio"
            {listed("global", known, others)}
            [local]
            kind = "audio"
            {listed("local", numbers, [SPEAKER])}
            [augment]
            ops = ["time-shift", "time-mask", "frequency-mask"]
            """
        )
    if task.local.test is None or task.global_ is None or task.global_.test is None:
        raise ValueError("the spoken digits have tests")
    own = replace(
        task, local=Domain(task.local.train, task.local.val), global_=Domain(task.global_.train, task.global_.val)
    )
    return Problem(own, task.local.test, task.global_.test, whole=True)


def _from_text(text: str) -> Task:
    """Load a task file that is only text, indented."""
    return opened_from("\n".join(line.strip() for line in text.splitlines()))
