"""The plain arms of `benchmarks.alternatives` that train blocks: a tail on stored features, and fastai's recipe."""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.alternatives.arms import BATCH, MIXED, Part, Subject
from benchmarks.alternatives.claims import Result
from benchmarks.alternatives.heads import dense_layer, ridge
from benchmarks.alternatives.problem import Problem, drawn
from benchmarks.lib.setup import Joined
from tuner.arrays import Array, Floats, Labels, RowNumbers
from tuner.augment.maps import augment
from tuner.backends.torch.model.head import head_of
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.task import Samples, normalise

#: Epochs of the stored tail.
TAIL_EPOCHS = 8
#: Learning rates of the stored tail, constant; the first is used where there is no time to choose.
TAIL_RATES = (3e-4, 1e-4, 1e-3)
#: The same where the tail begins with a linear probe, which large rates would undo.
PROBED_RATES = (1e-4, 3e-4, 3e-5)
#: Steps that tell how long a step takes.
TIMED_STEPS = 5
#: Most global samples that a rate is judged by.
JUDGED = 500
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


def stored_tail(problem: Problem, seed: int, allowed: float, *, probed: bool = False) -> list[Result]:
    """Return what training the blocks after half of the FLOPs reaches, each input computed once.

    Where the user's classes come beside old ones, 2,000 global samples are mixed in; where she has the classes of
    others, the tail is trained without any, and again with them.

    Args:
        problem: The problem.
        seed: Seed.
        allowed: Seconds; those that are left choose the learning rate.
        probed: Whether the head begins as a linear probe of what it reads.
    """
    subject, mixed, began = Subject(problem), problem.mixed(MIXED, seed), time.perf_counter()
    cut = half_of([block.flops for block in subject.model.info.blocks])
    own, old = subject.stored(problem.own, cut), None if mixed is None else subject.stored(mixed, cut)
    name, results = f"{'LP-FT' if probed else 'stored tail'} {allowed:.0f} s", list[Result]()
    rates = PROBED_RATES if probed else TAIL_RATES
    if not problem.adds_classes:
        alone = began + (old.seconds if old is not None else 0)  # its seconds are not this arm's
        results += StoredTail(subject, cut, own, None, None, name, rates, probed, seed).results(alone, allowed)
    if old is not None:
        since = began if problem.adds_classes else time.perf_counter() - own.seconds - old.seconds
        arm = StoredTail(subject, cut, own, old, mixed, f"{name} + global", rates, probed, seed)
        results += arm.results(since, allowed)
    return results


def half_of(flops: list[int]) -> int:
    """Return the cut before which there are as nearly as can be half of the FLOPs, and at least one block."""
    before = np.cumsum([0, *flops])[1:-1]
    return 1 + int(np.argmin(np.abs(before - sum(flops) / 2)))


@dataclass(frozen=True, slots=True, eq=False)
class StoredTail:
    """A tail that is trained on stored features.

    Attributes:
        subject: The problem and its model.
        cut: Block that the tail begins with.
        own: Features of the user's samples, those of `local.val` last.
        old: Features of global samples that are mixed in; None without.
        mixed: These samples.
        name: Name of the arm.
        rates: Learning rates to choose from.
        probed: Whether the head begins as a linear probe.
        seed: Seed.
    """

    subject: Subject
    cut: int
    own: Part
    old: Part | None
    mixed: Samples | None
    name: str
    rates: Sequence[float]
    probed: bool
    seed: int

    def _rows(self, count: int) -> tuple[Floats, Labels]:
        """Return the first so many of the user's samples, and the mixed ones."""
        parts = [(self.own.x[:count], self.own.y[:count]), *([] if self.old is None else [(self.old.x, self.old.y)])]
        x, y = (np.concatenate(values) for values in zip(*parts, strict=True))
        return x, y

    def begun(self, count: int) -> nn.Module:
        """Return the tail as it is before it trains."""
        tail = copy.deepcopy(self.subject.model.tail(self.cut)).eval()
        if self.probed:
            x, y = self._rows(count)
            rows, places = np.unique(y, return_inverse=True)
            found = dense_layer(_read(tail, x)[1], places, len(rows), balanced=self.old is not None, seed=self.seed)
            with torch.no_grad():
                for value, solved in zip(_head(tail).parameters(), found, strict=True):
                    value[rows] = torch.from_numpy(solved).reshape(value[rows].shape)
        return tail

    def trained(self, tail: nn.Module, count: int, rate: float, most: int | None = None) -> nn.Module:
        """Train a tail on so many of the user's samples, for eight epochs or at most so many steps."""
        torch.manual_seed(self.seed)
        x, y = map(torch.from_numpy, self._rows(count))
        freeze_norms(tail.train())
        optimiser = torch.optim.AdamW(tail.parameters(), rate)
        order = [rows for _ in range(TAIL_EPOCHS) for rows in torch.split(torch.randperm(len(y)), TAIL_BATCH)]
        for rows in order[:most]:
            loss = functional.cross_entropy(tail(x[rows]), y[rows], label_smoothing=SMOOTHING)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimiser.step()
        return tail.eval()

    def chosen_rate(self, until: float) -> float:
        """Return the rate that does best on validation data, of as many as there is time for before the last fit."""
        problem, began, count = self.subject.problem, time.perf_counter(), len(self.subject.problem.task.local.train)
        start = self.begun(count)
        begun = time.perf_counter()
        self.trained(copy.deepcopy(start), count, self.rates[0], TIMED_STEPS)
        steps = TAIL_EPOCHS * -(-len(self._rows(len(self.own.y))[1]) // TAIL_BATCH)
        a_fit = begun - began + (time.perf_counter() - begun) / TIMED_STEPS * steps
        judges = [(problem.task.local.val, self.own.x[count:])]
        if problem.adds_classes and problem.task.global_ is not None:
            known = drawn(problem.task.global_.val, JUDGED, self.seed)
            judges.append((known, self.subject.stored(known, self.cut).x))
        affordable = int((until - time.perf_counter()) / a_fit) - 1
        if affordable < 2:  # one is no choice
            return self.rates[0]

        def score(rate: float) -> float:
            tail = self.trained(copy.deepcopy(start), count, rate)
            right = [self.subject.right(softmax(_read(tail, x)[0]), samples) for samples, x in judges]
            return float(np.mean([np.mean(flags) for flags in right]))

        return max(self.rates[:affordable], key=score)

    def results(self, began: float, allowed: float) -> list[Result]:
        """Return the results of the tail's own head, and of one solved again on the trained features."""
        problem, subject = self.subject.problem, self.subject
        rate = self.chosen_rate(began + allowed)
        tail = self.trained(self.begun(len(self.own.y)), len(self.own.y), rate)
        seconds = time.perf_counter() - began
        tests = [problem.test, *([] if problem.global_test is None else [problem.global_test])]
        read = [(samples, *_read(tail, subject.stored(samples, self.cut).x)) for samples in tests]
        began = time.perf_counter()
        kept = subject.answered(_read(tail, self.own.x)[1], problem.own)
        known = None
        if self.old is not None and self.mixed is not None:
            known = subject.answered(_read(tail, self.old.x)[1], self.mixed)
        scores = solved_again(tail, problem, kept, known)
        solving = time.perf_counter() - began
        flags, again = list[tuple[int, ...]](), list[tuple[int, ...]]()
        for samples, logits, features in read:
            flags.append(subject.right(softmax(logits), samples))
            means, labels = subject.answered(features, samples)
            again.append(tuple(int(flag) for flag in scores(means).argmax(1) == labels))
        has_known, note = len(tests) > 1, f"rate {rate:.0e}"
        return [
            Result(self.name, seconds, flags[0], flags[1] if has_known else None, note),
            Result(f"{self.name}, solved again", seconds + solving, again[0], again[1] if has_known else None, note),
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
    together = samples if old is None else Joined(samples, drawn(old, len(samples), seed))
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
