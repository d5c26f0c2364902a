"""Side heads as modules, and their losses, against the formulas written out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tuner.backends.torch.step.losses import exit_loss
from tuner.backends.torch.task_loss import CROSS_ENTROPY, torch_loss
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan, head_macs, head_parameters
from tuner.plan.parts import RecipePlan
from tuner.plan.trial import TrialPlan, normal_form
from tuner.ridge.sums import coded, step_of
from tuner.runtime.train.exit_targets import linear_features
from tuner.targets import MultiLabel
from tuner_exits.torch.heads import head
from tuner_exits.torch.inputs import CutInputs
from tuner_exits.torch.steps import HeadsSteps, mirrored

pytestmark = pytest.mark.slow
LABELS = torch.tensor([0, 2, 1, 1])


def logits(seed: int) -> torch.Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(12, 9, 7), (4, 2, 2), (3, 1, 1), (20,), (5, 6)])
def test_a_head_has_the_counted_parameters_and_macs(shape: tuple[int, ...]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    module = head(shape, 8, 3).eval()
    assert sum(one.numel() for one in module.parameters()) == head_parameters(shape, 8, 3)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        assert module(torch.zeros(2, *shape)).shape == (2, 3)
    assert counter.get_total_flops() == 2 * 2 * head_macs(shape, 8, 3)


def test_alone_labels_and_own_answers_are_cross_entropy_with_them() -> None:
    for plan, wanted in (
        (HeadsPlan(supervised=1.0, distilled=0.0), LABELS),
        (HeadsPlan(pseudo=1.0, distilled=0.0), logits(1).argmax(1)),
    ):
        found = exit_loss(logits(0), logits(1), LABELS, plan)
        assert torch.equal(found, functional.cross_entropy(logits(0), wanted))


def test_distillation_alone_is_the_divergence_from_the_softened_final_head() -> None:
    theirs, ours = torch.softmax(logits(1) / 4, 1), torch.softmax(logits(0) / 4, 1)
    wanted = 16 * (theirs * (theirs / ours).log()).sum(1).mean()
    torch.testing.assert_close(exit_loss(logits(0), logits(1), LABELS, HeadsPlan(temperature=4.0)), wanted)
    assert exit_loss(logits(1), logits(1), LABELS, HeadsPlan()).abs() < 1e-5


@pytest.mark.parametrize("weights", [{"supervised": 0.7}, {"pseudo": 0.3}])
def test_the_hybrid_adds_the_two(weights: dict[str, Any]) -> None:
    alone: dict[str, Any] = dict.fromkeys(weights, 1.0)
    apart = HeadsPlan(**alone, distilled=0.0), HeadsPlan(distilled=1.0)
    one, other = (exit_loss(logits(0), logits(1), LABELS, plan) for plan in apart)
    both = exit_loss(logits(0), logits(1), LABELS, HeadsPlan(**weights, distilled=0.5))
    torch.testing.assert_close(both, next(iter(weights.values())) * one + 0.5 * other)


def test_several_labels_are_bernoullis() -> None:
    hot = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    plan = HeadsPlan(supervised=1.0, distilled=0.0)
    wanted = functional.binary_cross_entropy_with_logits(logits(0), hot)
    assert torch.equal(exit_loss(logits(0), logits(1), hot, plan, torch_loss(MultiLabel())), wanted)
    theirs, ours = torch.sigmoid(logits(1) / 2), torch.sigmoid(logits(0) / 2)
    each = theirs * (theirs / ours).log() + (1 - theirs) * ((1 - theirs) / (1 - ours)).log()
    soft = exit_loss(logits(0), logits(1), hot, HeadsPlan(temperature=2.0), torch_loss(MultiLabel()))
    torch.testing.assert_close(soft, 4 * each.mean())
    own = exit_loss(logits(0), logits(1), hot, HeadsPlan(pseudo=1.0, distilled=0.0), torch_loss(MultiLabel()))
    assert torch.equal(own, functional.binary_cross_entropy_with_logits(logits(0), (logits(1) > 0).float()))


def test_an_exit_in_closed_form_reads_the_same_of_a_flipped_map() -> None:
    maps = np.random.default_rng(0).random((6, 5, 8, 8), np.float32)
    kept, flipped = linear_features(maps), linear_features(maps[..., ::-1])
    np.testing.assert_allclose(flipped, kept, rtol=1e-6)
    assert np.abs(coded(flipped, step_of(kept)) - coded(kept, step_of(kept))).max() <= 1  # of 16,384


def test_maps_of_a_chosen_sample_are_mirrored_at_every_cut_and_vectors_are_not() -> None:
    maps, vectors = torch.rand(3, 2, 4, 4), torch.rand(3, 7)
    found = mirrored({1: maps, 2: vectors}, torch.tensor([True, False, True]))
    assert torch.equal(found[1][1], maps[1])
    assert torch.equal(found[1][[0, 2]], maps[[0, 2]].flip(-1))
    assert torch.equal(found[2], vectors)


@pytest.mark.parametrize("flips", [False, True])
def test_exits_train_on_mirrored_maps_only_where_the_plan_says_so(*, flips: bool) -> None:
    model, seen = example_model(20), []
    plan = normal_form(
        TrialPlan(
            model,
            replace(example_task(), augment=("flip",)),
            heads=HeadsPlan("exits-only", (Exit(3, 2),), flips=flips),
            recipe=RecipePlan(epochs=1),
        )
    )
    assert plan.heads.flips == flips
    shape = model.blocks[3].in_shape
    maps = {3: torch.rand(40, *shape), 19: torch.rand(40, *model.blocks[19].in_shape)}
    inputs = CutInputs(
        lambda cuts: lambda rows: {cut: maps[cut][torch.from_numpy(rows)] for cut in cuts}, np.zeros(40, np.int64)
    )
    heads = torch.nn.ModuleList([head(shape, 2, model.outputs)])
    heads[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    final = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(model.outputs))
    final(maps[19])
    steps = HeadsSteps(plan, heads, final, inputs, loss=CROSS_ENTROPY)
    steps.begin_epoch()
    steps.step(np.arange(40), 1e-3)
    moved = [not torch.equal(got, given) for got, given in zip(seen[0], maps[3], strict=True)]
    assert 5 < sum(moved) < 35 if flips else not any(moved)
