"""The exit tables of ResNet-50 and MobileNetV2 are arithmetic, and hold to the figure."""

import pytest

from benchmarks.papers.exits.persephonee import TAPS, described, exact, exit_table, reached

pytestmark = pytest.mark.slow


def test_exits_sit_where_the_paper_has_them_and_cost_what_its_figures_say() -> None:
    models = {name: described(name) for name in TAPS}
    claims = exact(models)
    assert [claim.claim for claim in claims if not claim.met] == []
    assert len(claims) == 5
    resnet, mobile = models["resnet50"], models["mobilenet_v2"]
    assert reached(resnet, resnet.num_blocks)[0] == 25_557_032
    assert reached(mobile, mobile.num_blocks)[0] == 3_504_872
    row = next(row for row in exit_table("resnet50", resnet) if row["exit after"] == "layer2.1")
    assert (row["parameters"], row["head parameters"]) == (884_800, 866_792)
    assert row["times fewer FLOPs"] == pytest.approx(2.73, abs=0.01)
