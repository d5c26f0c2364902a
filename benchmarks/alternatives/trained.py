"""The plain arms of `benchmarks.alternatives` that train blocks: a tail on stored features, and fastai's recipe."""

import copy
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.alternatives.arms import BATCH, MIXED, Part, Subject
from benchmarks.alternatives.claims import Result
from benchmarks.alternatives.heads import ridge
from benchmarks.alternatives.problem import Problem, Together, drawn
from tuner.arrays import Array, Floats, RowNumbers
from tuner.augment.maps import augment
from tuner.backends.torch.model.head import head_of
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.task import Samples, normalise

#: Epochs of the stored tail.
TAIL_EPOCHS = 8
#: Learning rate of the stored tail, constant.
TAIL_RATE = 3e-4
#: A second learning rate, tried where old classes are to be kept: it forgets less.
GENTLE_RATE = 1e-4
#: Samples of a step of the stored tail.
TAIL_BATCH = 16
#: Label smoothing of the stored tail.
SMOOTHING = 0.1
#: Samples of a step of fastai's recipe.
RECIPE_BATCH = 16
#: Base learning rate of fastai's recipe: that of `Learner.fine_tune`.
RECIPE_RATE = 2e-3
#: Most epochs that fastai's recipe trains all layers for.
MOST_EPOCHS = 20


def stored_tail(problem: Problem, seed: int) -> list[Result]:
    """Return what training the blocks after half of the FLOPs reaches, each input computed once.

    Where the user's classes come beside old ones, 2,000 global samples are mixed in; where she has the classes of
    others, the tail is trained without any, and again with them.
    """
    subject, mixed = Subject(problem), problem.mixed(MIXED, seed)
    cut = half_of([block.flops for block in subject.model.info.blocks])
    own, old = subject.stored(problem.own, cut), None if mixed is None else subject.stored(mixed, cut)
    results = list[Result]()
    for name, others in (("stored tail", None), ("stored tail + global", old)):
        if (others is None) is (problem.adds_classes or name.endswith("global")):
            continue
        together = mixed if others is not None else None
        results += _tail(subject, cut, own, others, together, name, TAIL_RATE, seed)
        if problem.adds_classes:
            results += _tail(subject, cut, own, others, together, f"{name}, {GENTLE_RATE:.0e}", GENTLE_RATE, seed)
    return results


def half_of(flops: list[int]) -> int:
    """Return the cut before which there are as nearly as can be half of the FLOPs, and at least one block."""
    before = np.cumsum([0, *flops])[1:-1]
    return 1 + int(np.argmin(np.abs(before - sum(flops) / 2)))


def _tail(
    subject: Subject, cut: int, own: Part, old: Part | None, mixed: Samples | None, name: str, rate: float, seed: int
) -> list[Result]:
    """Train a tail; return the results of its own head, and of one solved again on the trained features."""
    problem, began = subject.problem, time.perf_counter()
    torch.manual_seed(seed)
    tail, parts = copy.deepcopy(subject.model.tail(cut)), [own, *([] if old is None else [old])]
    x, y = (torch.from_numpy(np.concatenate([getattr(part, key) for part in parts])) for key in ("x", "y"))
    freeze_norms(tail.train())
    optimiser = torch.optim.AdamW(tail.parameters(), rate)
    for _ in range(TAIL_EPOCHS):
        for rows in torch.split(torch.randperm(len(y)), TAIL_BATCH):
            loss = functional.cross_entropy(tail(x[rows]), y[rows], label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimiser.step()
    tail.eval()
    seconds = sum(part.seconds for part in parts) + time.perf_counter() - began
    tests = [problem.test, *([] if problem.global_test is None else [problem.global_test])]
    read = [(samples, *_read(tail, subject.stored(samples, cut).x)) for samples in tests]
    began = time.perf_counter()
    kept = subject.answered(_read(tail, own.x)[1], problem.own)
    known = None if old is None or mixed is None else subject.answered(_read(tail, old.x)[1], mixed)
    scores = solved_again(tail, problem, kept, known)
    solving = time.perf_counter() - began
    flags, again = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for samples, logits, features in read:
        flags.append(subject.right(softmax(logits), samples))
        means, labels = subject.answered(features, samples)
        again.append(tuple(int(flag) for flag in scores(means).argmax(1) == labels))
    has_known = len(tests) > 1
    return [
        Result(name, seconds, flags[0], flags[1] if has_known else None),
        Result(f"{name}, solved again", seconds + solving, again[0], again[1] if has_known else None),
    ]


def solved_again(
    tail: nn.Module, problem: Problem, own: tuple[Array, Array], old: tuple[Array, Array] | None
) -> Callable[[Array], Array]:
    """Return a head in closed form on trained features: ridge; beside old classes the union head of `tuner.ridge`."""
    outputs = len(problem.task.labels)
    if not problem.adds_classes or old is None:
        both = [own, *([] if old is None else [old])]
        x, y = (np.concatenate(values) for values in zip(*both, strict=True))
        rows, places = np.unique(y, return_inverse=True)
        head = ridge(x, places, len(rows), balanced=old is not None)

        def scores(features: Array) -> Array:
            answer = np.full((len(features), outputs), -np.inf)
            answer[:, rows] = head(features)
            return answer

        return scores
    weight, bias = (value.detach().double().numpy().copy() for value in _head(tail).parameters())
    weight[len(problem.task.head_rows) :], bias[len(problem.task.head_rows) :] = 0, 0
    step = step_of(np.concatenate([own[0], old[0]]))
    empty = Domain.empty(own[0].shape[1], outputs, step)
    domains = [empty.added(coded(x, step), y) for x, y in (own, old)]
    given = LinearHead(weight.reshape(outputs, -1), bias)
    return union_head(given, domains[0], domains[1], UnionSettings()).head.scores


def _head(model: nn.Module) -> nn.Linear | nn.Conv2d:
    found = head_of(model)
    if found is None or found[1].bias is None:
        raise ValueError("the model must end with a linear layer with a bias")
    return found[1]


def _read(tail: nn.Module, x: Floats) -> tuple[Floats, Floats]:
    """Return logits, and what the last layer reads, [n, features]."""
    read, logits = list[Array](), list[Array]()
    hook = _head(tail).register_forward_pre_hook(lambda _, values: read.append(values[0].flatten(1).numpy()))
    try:
        with torch.inference_mode():
            logits += [tail(torch.from_numpy(x[at : at + BATCH])).numpy() for at in range(0, len(x), BATCH)]
    finally:
        hook.remove()
    return np.concatenate(logits), np.concatenate(read)


def softmax(logits: Array) -> Array:
    """Return probabilities [n, labels]."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    result: Array = powers / powers.sum(1, keepdims=True)
    return result


def _norms(model: nn.Module) -> list[nn.Module]:
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d)
    return [module for module in model.modules() if isinstance(module, kinds)]


def freeze_norms(model: nn.Module) -> None:
    """Let batch norms use their stored statistics, and keep them, while the rest trains."""
    for norm in _norms(model):
        norm.eval()


def fastai_recipe(problem: Problem, seed: int, allowed: float) -> list[Result]:
    """Return what the recipe of fastai's `fine_tune` reaches, written in PyTorch; it trains from pixels, augmented.

    The head and the norms train for one epoch; then all layers do for 20 at most, with rates that fall towards the
    input; both by one-cycle schedules, which end with the seconds where these are too few (half for the first). A new
    head has a batch norm before it. Where the user's classes come beside old ones, as many global samples as the user
    has are mixed in.
    """
    subject, began = Subject(problem), time.perf_counter()
    torch.manual_seed(seed)
    task, samples, model = problem.task, problem.own, copy.deepcopy(subject.model.model)
    if not task.head_rows:
        normalise_head(model)
    old = problem.mixed(len(samples), seed) if problem.adds_classes else None
    together = samples if old is None else Together(samples, drawn(old, len(samples), seed))
    raw, y = np.stack([together.load(index) for index in range(len(together))]), torch.from_numpy(together.labels)
    generator, operations = np.random.default_rng(seed), frozenset(task.augment)

    def batch(rows: RowNumbers) -> torch.Tensor:
        return torch.from_numpy(augment(normalise(raw[rows], task.input), generator, operations, 1.0))

    def train(rates: list[float], most: int, start: float, until: float) -> float:
        """Train for so many epochs, or until a time, which then hurries the schedule; return the epochs."""
        used = [(part, rate) for part, rate in zip(_groups(model), rates, strict=True) if part]
        groups = [{"params": part, "lr": rate} for part, rate in used]
        optimiser = torch.optim.AdamW(groups, weight_decay=0.01, betas=(0.9, 0.99), eps=1e-5)
        batches, begin, done = -(-len(y) // RECIPE_BATCH), time.perf_counter(), 0
        model.train()
        while (progress := max(done / (most * batches), (time.perf_counter() - begin) / max(1.0, until - begin))) < 1:
            if done % batches == 0:
                order = torch.split(torch.randperm(len(y)), RECIPE_BATCH)
            rows, share = order[done % batches], one_cycle(progress, start)
            done += 1
            if len(rows) == 1:  # norms have no statistics of one sample
                continue
            for group, (_, rate) in zip(optimiser.param_groups, used, strict=True):
                group["lr"], group["betas"] = rate * share, (0.95 - 0.1 * share, 0.99)
            optimiser.zero_grad()
            functional.cross_entropy(model(batch(rows.numpy())), y[rows]).backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimiser.step()
        return done / batches

    trained_norms = {id(value) for norm in _norms(model) for value in norm.parameters()}
    trained = trained_norms | {id(value) for value in _head(model).parameters()}
    for value in model.parameters():
        value.requires_grad_(id(value) in trained)
    end, rate = began + allowed, RECIPE_RATE / 2
    train([RECIPE_RATE / 10, RECIPE_RATE / 10, RECIPE_RATE], 1, 0.99, began + allowed / 2)
    model.requires_grad_()
    count = train([rate / 100, rate / 10, rate], MOST_EPOCHS, 0.3, end)
    seconds = time.perf_counter() - began
    model.eval()

    def scores(others: Samples) -> Array:
        parts = np.array_split(np.arange(len(others)), -(-len(others) // BATCH))
        with torch.inference_mode():
            logits = [model(torch.from_numpy(task.batch(others, rows))).numpy() for rows in parts]
        return softmax(np.concatenate(logits))

    result = subject.tested(f"fastai recipe {allowed:.0f} s", seconds, scores)
    return [Result(result.arm, seconds, result.local, result.known, f"{count:.1f} epochs of all layers")]


def one_cycle(progress: float, start: float) -> float:
    """Return the share of the largest rate after a share of the training: a fifth, to all at `start`, to none."""
    if progress < start:
        return 0.6 - 0.4 * math.cos(math.pi * progress / start)
    return 0.5 + 0.5 * math.cos(math.pi * (progress - start) / (1 - start))


def normalise_head(model: nn.Module) -> None:
    """Put a batch norm before the last linear layer, as fastai's heads have it: without, it learns slowly."""
    found = head_of(model)
    if found is not None and isinstance(found[1], nn.Linear):
        parent, _, leaf = found[0].rpartition(".")
        setattr(model.get_submodule(parent), leaf, nn.Sequential(nn.BatchNorm1d(found[1].in_features), found[1]))


def _groups(model: nn.Module) -> list[list[nn.Parameter]]:
    """Return the weights that train: of the first half of the layers before the head, of the second, of the head."""
    head = {id(value) for value in _head(model).parameters()}
    body = [value for value in model.parameters() if id(value) not in head]
    parts = [body[: len(body) // 2], body[len(body) // 2 :], list(_head(model).parameters())]
    return [[value for value in part if value.requires_grad] for part in parts]
