"""What plugins add to a backend besides lowerings: selectors and measures."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.plan.plans import PLAN, mixed
from tuner.backends.extensions import Extensions
from tuner.plan.parts import DataEdit
from tuner.plugin.core import build_host
from tuner.plugin.hookspecs import hookimpl


def nothing(*_: object) -> Any:
    return ()


@dataclass(eq=False)
class Offers:
    kinds: tuple[str, ...]

    @hookimpl
    def tuner_selectors(self) -> Mapping[str, Any]:
        if "raises" in self.kinds:
            raise OSError("no table")
        return dict.fromkeys(self.kinds, nothing)

    @hookimpl
    def tuner_measures(self, backend: str) -> Mapping[str, Any]:
        return {f"{kind}_{backend}": nothing for kind in self.kinds}


def test_selectors_and_measures_reach_the_backend() -> None:
    extensions = build_host({"a": Offers(("x",)), "b": Offers(("y",))}, installed=False).extensions("torch")
    assert extensions.selectors == {"x": nothing, "y": nothing}
    assert extensions.measures == {"x_torch": nothing, "y_torch": nothing}


def test_two_selectors_of_one_kind_are_a_clash_that_names_both_plugins() -> None:
    host = build_host({"a": Offers(("x",)), "b": Offers(("x",))}, installed=False)
    plan = replace(PLAN, data=replace(mixed(0.05).data, edit=DataEdit("x", candidates=2)))
    clash = host.extensions("torch").lacking(plan)
    assert clash is not None
    assert clash.startswith("plugins 'a' and 'b' both realise data edit 'x': remove one")


def test_a_hook_that_raises_offers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    host = build_host({"a": Offers(("raises",)), "b": Offers(("y",))}, installed=False)
    with caplog.at_level(logging.WARNING):
        assert host.extensions("torch").selectors == {"y": nothing}
    assert [record.getMessage() for record in caplog.records] == ["plugin a: tuner_selectors raised"]


def test_a_plan_whose_selector_no_plugin_offers_is_said_to_lack_it() -> None:
    plan = replace(PLAN, data=replace(mixed(0.05).data, edit=DataEdit("x", candidates=2)))
    assert Extensions(selectors={"x": nothing}).lacking(plan) is None
    assert Extensions(selectors={"y": nothing}).lacking(plan) == (
        "no installed plugin realises data edit 'x' on torch (there are: y): see `tuner plugins`"
    )
    assert Extensions().lacking(mixed(0.05)) is None
