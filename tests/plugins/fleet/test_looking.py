"""A shared study in the dashboard."""

from collections.abc import Callable
from typing import Any

from tuner_dashboard.server import followed

Join = Callable[..., Any]


def test_the_dashboard_follows_a_study(join: Join, address: str) -> None:
    one = join("one")
    with followed(address) as source:
        before = source.stamp()
        one.step()
        assert source.stamp() != before
        assert len(source.open().records) == 1
