"""The cache sizes of Cache-and-Reuse follow from the models' own shapes."""

import pytest

from benchmarks.papers.cache_sizes import PRINTED, judge, measure, shape_after


@pytest.mark.slow
def test_the_papers_sizes_are_those_of_the_models() -> None:
    sizes = [
        measure(setting, shape_after(model, module), bits, paper_mib, 2)
        for setting, model, module, printed in PRINTED
        for bits, paper_mib in printed.items()
    ]
    assert [claim.met for claim in judge(sizes)][:2] == [True, True]
    assert not judge([*sizes, measure("another cut", shape_after("resnet18", "layer2"), 4, 1200, 2)])[1].met
