"""A bundle of a head in closed form: the network up to its cut, and the head, solved once more with all samples."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tuner.bundle.format import MODEL, PLAN, WEIGHTS, seal, write_input
from tuner.bundle.info import BundleInfo, RunTrial, Section, TrainInfo, TrainKind
from tuner.bundle.replay import Replay
from tuner.bundle.scores import Scores
from tuner.distribution import installed_version
from tuner.ort.parity import largest_difference, require_parity
from tuner.ort.session import FEATURES, LOGITS, Session
from tuner.plan.text import describe
from tuner.plan.toml import to_toml
from tuner.plan.trial import TrialPlan
from tuner.runtime.train.files import CHECK, REPLAY
from tuner.runtime.train.solved import SolvedFile
from tuner.targets.base import LEFT_OUT
from tuner_instant.classifier import BIAS, WEIGHT
from tuner_instant.heads import BITS, Head, Heads

#: Number of samples that the written model is checked on.
CHECKED = 2


def write(
    heads: Heads,
    one: Head,
    plan: TrialPlan,
    folder: Path,
    *,
    trainable: bool = False,
    refit: bool = True,
    test: bool = True,
    run: RunTrial | None = None,
    plugins: Mapping[str, str] | None = None,
) -> BundleInfo:
    """Write a bundle into a folder of `new_folder`, check it, and return what it says of itself.

    Args:
        heads: What was gathered.
        one: The head.
        plan: Its plan.
        folder: The folder.
        trainable: Whether the bundle keeps samples, to learn further ones and to forget some.
        refit: Whether the head is solved again with the samples that judged it.
        test: Whether test samples are scored.
        run: Trial that it is of, if any.
        plugins: Distribution and version of each plugin that took part.

    Raises:
        TunerError: The written model does not compute what the head does.
    """
    gathered, head = heads.gathered, heads.solved(one, refit=refit)
    cut = gathered.cuts[one.cut]
    heads.classifier.write(folder / MODEL, [cut], head, one.bits)
    save_file({WEIGHT: head.weight.astype(np.float32), BIAS: head.bias.astype(np.float32)}, folder / WEIGHTS)
    plan = replace(plan, data=replace(plan.data, refit=refit))
    (folder / PLAN).write_text(to_toml(plan), encoding="utf-8")
    write_input(folder, gathered.info.input)
    noise = np.random.default_rng(0).standard_normal((CHECKED, *gathered.info.input_shape), np.float32)
    features, logits = Session(folder / MODEL, 1).run(noise, FEATURES, LOGITS)
    require_parity("the written model", "numpy", largest_difference(logits, head.scores(features).astype(np.float32)))
    scores = {key: value for key, value in one.values.items() if key.startswith("local") and LEFT_OUT not in key}
    parts = {"global.val": "global", "local.test": "test"} if test else {"global.val": "global"}
    for part, domain in parts.items():
        if heads.has(part):
            scores |= heads.scores(domain, head, heads.domain(heads.place(one), part))
    judged = heads.count("local.val") if refit else 0
    return seal(
        folder,
        replace(
            gathered.info,
            made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            tuner=installed_version(),
            sentence=describe(plan),
            run=run,
            plugins=plugins or {},
            scores=Scores(
                one.values,
                heads.untouched(),
                scores,
                refit_samples=judged,
                test_left_out=heads.has("local.test") and not test,
            ),
            train=_write_samples(heads, one, folder, plan, refit=refit) if trainable else None,
        ).to_dict(),
    )


def _write_samples(heads: Heads, one: Head, folder: Path, plan: TrialPlan, *, refit: bool) -> TrainInfo:
    """Write what the head is solved for again from, when samples are added or forgotten."""
    (folder / Section.TRAIN).mkdir(mode=0o700)
    at = heads.place(one)
    local = heads.domain(at, "local.train", *(["local.val"] if refit else []))
    SolvedFile(heads.given(at), local.codes, local.labels, local.step, one.settings).save(folder)
    codec, known, check = heads.codec(at), heads.mixed(at, one.share), heads.domain(at, "global.val")
    for path, samples in ((REPLAY, known), (CHECK, check)):
        features = (samples.codes * samples.step).astype(np.float32)
        Replay(codec, codec.encode(features), samples.labels).save(folder / path)
    return TrainInfo(
        TrainKind.CLOSED_FORM,
        replay_samples=len(known),
        check_samples=len(check),
        own_samples=len(local),
        bits=BITS,
        bytes=sum(path.stat().st_size for path in (folder / Section.TRAIN).iterdir()),
        weights=(WEIGHT, BIAS),
        cut=plan.split,
    )
