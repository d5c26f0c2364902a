"""Processes that write until they are killed: what they leave behind is whole."""

import random
import time
from collections.abc import Callable, Iterator
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tests.warm import fork
from tuner.files import write_private
from tuner_watch.ring import Ring
from tuner_watch.serving import install_round, roll_back


def killed(times: int, seconds: float, write: Callable[..., Iterator[None]], *arguments: object) -> Iterator[None]:
    """Yield after each of so many kills of a process that writes, at most so many seconds after its first step."""
    draw = random.Random(0)
    for _ in range(times):
        ours, theirs = Pipe()
        process = fork(_run, theirs, write, *arguments)
        ours.recv()
        time.sleep(draw.uniform(0, seconds))
        process.kill()
        process.join()
        yield


def _run(started: Connection, write: Callable[..., Iterator[None]], *arguments: object) -> None:
    for number, _ in enumerate(write(*arguments)):
        if not number:
            started.send(None)


def swaps(bundle: Path, *others: Path) -> Iterator[None]:
    """Swap rounds of a bundle, and roll back now and then."""
    for number in count():
        install_round(bundle, others[number % 2])
        if number % 5 == 4:
            roll_back(bundle)
        yield


def ring_samples(folder: Path) -> Iterator[None]:
    """Add samples to a ring: each is filled with a number that its label gives."""
    ring = Ring(folder, most_samples=20)
    for number in count():
        ring.add(np.full((3, 64, 64), number % 251, np.uint8) + np.uint8(number % 7), str(number))
        yield


def contents(path: Path) -> Iterator[None]:
    """Replace a file by another digit, again and again."""
    for number in count():
        write_private(path, str(number % 10) * 100_000)
        yield
