"""The networks of MDLdroidLite have the parameters and FLOPs that its tables print."""

import pytest
import torch
from torch import nn

from benchmarks.papers.growth.ric_tables import DIFFERENT, agrees, claims, counted
from tuner.errors import TaskError
from tuner.models.counts import flops, parameters
from tuner.models.lenet import lenet_1d, lenet_2d
from tuner.models.mobilenet import mobilenet_1d
from tuner.models.vgg import vgg_11

FULL_FLOPS = (2_000_232, 2_937_112, 2_736_042, 3_379_792, 4_646_400, 736_236, 1_135_020, 1_257_206, 1_414_060)
PARAMETERS = (
    *(394816, 177521, 14593, 9747, 41013),
    *(570096, 153257, 15379, 8889, 24722),
    *(401521, 84489, 9682, 6832, 21497),
    *(694256, 175855, 17564, 10636, 18858),
    *(431080, 219714, 38056, 20963, 35805),
    *(50310, 8386, 7558, 3759, 5630),
    *(51718, 15506, 7370, 3335, 6210),
    *(57355, 25615, 13653, 6783, 13151),
    *(50374, 33214, 7158, 3759, 6458),
)


def test_forty_five_parameter_counts_and_forty_three_flop_counts_are_the_papers() -> None:
    counts = counted()
    assert len(counts) == 45
    assert tuple(count.parameters for count in counts) == PARAMETERS
    assert all(count.parameters_agree for count in counts)
    assert tuple((count.data, count.method) for count in counts if not count.flops_agree) == DIFFERENT
    assert tuple(count.flops for count in counts if count.method == "full") == FULL_FLOPS
    assert all(claim.met for claim in claims(counts))


def test_a_printed_figure_may_be_rounded_or_cut_off_and_nothing_else() -> None:
    assert agrees(3.759, "3.75")
    assert agrees(3.759, "3.76")
    assert not agrees(3.759, "3.74")
    assert not agrees(0.597, "0.58")


TINY = [
    (lenet_1d(8, 100, 6, (2, 5, 10)), (8, 100), 1197),
    (lenet_1d(9, 128, 6, (2, 5, 10)), (9, 128), 1575),
    (lenet_1d(23, 100, 11, (2, 5, 10)), (23, 100), 1672),
    (lenet_1d(6, 150, 6, (2, 5, 10)), (6, 150), 1741),
    (lenet_2d(10, (2, 5, 10)), (1, 28, 28), 1227),
    (mobilenet_1d(8, 100, 12, 6, (3, 6, 12, 25)), (8, 100), 1086),
    (mobilenet_1d(9, 128, 14, 6, (3, 6, 12, 25)), (9, 128), 1218),
    (mobilenet_1d(23, 100, 12, 11, (3, 6, 12, 25)), (23, 100), 1756),
    (mobilenet_1d(6, 150, 14, 6, (3, 6, 12, 25)), (6, 150), 1092),
]


@pytest.mark.parametrize(("model", "shape", "count"), TINY)
def test_the_tiny_starts_of_growth_have_the_papers_counts(model: nn.Module, shape: tuple[int, ...], count: int) -> None:
    assert parameters(model) == count
    outputs = model(torch.zeros(3, *shape))
    assert outputs.shape[0] == 3
    assert torch.fx.symbolic_trace(model)(torch.zeros(3, *shape)).shape == outputs.shape


def test_a_mobilenet_with_norms_has_one_after_every_convolution() -> None:
    widths = (3, 6, 12, 25)
    plain, model = mobilenet_1d(widths=widths), mobilenet_1d(widths=widths, norms=True)
    kinds = [type(module).__name__ for module in model.children()]
    assert kinds[:-3] == ["Conv1d", "BatchNorm1d", "ReLU"] * 7
    assert parameters(model) == parameters(plain) + 2 * (3 + 3 + 6 + 6 + 12 + 12 + 25)


def test_a_tiny_vgg_runs_and_counting_leaves_its_mode_and_its_norms_alone() -> None:
    model = vgg_11(widths=(6, 12, 25, 25, 50, 50, 50, 50))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert flops(model, (3, 32, 32)) > 0
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_a_width_or_a_window_that_cannot_be_is_reported() -> None:
    with pytest.raises(TaskError, match=r"lenet_1d: windows must have at least 43 samples, got 40"):
        lenet_1d(8, 40)
    with pytest.raises(TaskError, match=r"lenet_2d: widths must be three numbers of at least 1, got \[0, 5, 10\]"):
        lenet_2d(10, (0, 5, 10))
    with pytest.raises(TaskError, match=r"mobilenet_1d: windows of 80 samples are too short for a kernel of 14"):
        mobilenet_1d(8, 80, 14)
    with pytest.raises(TaskError, match=r"mobilenet_1d: widths must be four numbers"):
        mobilenet_1d(widths=(3, 6, 12))  # type: ignore[arg-type]  # what a task file may say
    with pytest.raises(TaskError, match="vgg_11: widths must be eight numbers"):
        vgg_11(widths=(1, 2, 3))  # type: ignore[arg-type]  # likewise
