"""Files of weights as training scripts leave them: the tensors are the model's own, and nothing in a file runs."""

import argparse
import os
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tuner.backends.torch.model.open.factory import build
from tuner.errors import TaskError
from tuner.task import ModelSpec

State = Mapping[str, torch.Tensor]
NET = """from torch import nn
def build():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
"""


def prefixed(prefix: str, state: State) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": value for name, value in state.items()}


def others(state: State) -> State:
    return {name: value + 1 for name, value in state.items()}


@pytest.fixture
def state() -> State:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).state_dict()


def loaded(folder: Path, saved: Any, name: str = "w.pth", **options: Any) -> tuple[nn.Module, list[str]]:
    (folder / "net.py").write_text(NET)
    torch.save(saved, folder / name, **options)
    lines: list[str] = []
    return build(ModelSpec(f"{folder}/net.py:build", weights=str(folder / name)), say=lines.append), lines


ROWS: list[tuple[str, Callable[[State], Any], str]] = [
    ("plain", lambda state: state, ""),
    ("OrderedDict", OrderedDict, ""),
    ("state_dict", lambda state: {"state_dict": state, "epoch": 3, "best": np.float64(0.5)}, "entry 'state_dict'"),
    ("model", lambda state: {"model": state, "optimizer": {"state": {}}}, "entry 'model'"),
    ("model_state_dict", lambda state: {"epoch": 1, "model_state_dict": state}, "entry 'model_state_dict'"),
    ("ema", lambda state: {"ema": state, "epoch": 2}, "entry 'ema'"),
    (
        "state_dict_ema too",
        lambda state: {"state_dict_ema": others(state), "state_dict": state},
        "not its 'state_dict_ema'",
    ),
    ("model.state_dict", lambda state: {"model": {"state_dict": state}}, "entry 'model.state_dict'"),
    ("module.", lambda state: prefixed("module.", state), "without the prefix 'module.'"),
    ("model.", lambda state: prefixed("model.", state), "without the prefix 'model.'"),
    ("_orig_mod.", lambda state: prefixed("_orig_mod.", state), "torch.compile"),
    ("module._orig_mod.", lambda state: prefixed("module._orig_mod.", state), "without the prefix 'module.'"),
    ("inner _orig_mod.", lambda state: {name.replace("0.", "0._orig_mod."): v for name, v in state.items()}, "compile"),
    (
        "lightning",
        lambda state: {"state_dict": prefixed("net.", state) | {"criterion.weight": torch.ones(2)}},
        "1 tensors",
    ),
    ("teacher too", lambda state: prefixed("teacher.", others(state)) | prefixed("student.", state), "'student.'"),
    ("ema_model. too", lambda state: prefixed("ema_model.", others(state)) | prefixed("model.", state), "'model.'"),
    ("timm's args", lambda state: {"state_dict": state, "args": argparse.Namespace(lr=0.1)}, "entry 'state_dict'"),
    ("a path", lambda state: {"state_dict": state, "out": Path("x"), "ns": SimpleNamespace(a=1)}, "entry"),
    ("half", lambda state: {name: v.half() if v.is_floating_point() else v for name, v in state.items()}, ""),
    ("double", lambda state: {name: v.double() if v.is_floating_point() else v for name, v in state.items()}, ""),
    ("parameters", lambda state: {n: nn.Parameter(v) if v.is_floating_point() else v for n, v in state.items()}, ""),
    ("no counters", lambda state: {n: v for n, v in state.items() if "tracked" not in n}, ""),
]


@pytest.mark.parametrize(("kind", "saved", "said"), ROWS, ids=[row[0] for row in ROWS])
def test_the_weights_are_found(
    tmp_path: Path, state: State, kind: str, saved: Callable[[State], Any], said: str
) -> None:
    model, lines = loaded(tmp_path, saved(state))
    close = 1e-3 if kind == "half" else 1e-6
    for name, value in model.state_dict().items():
        assert "tracked" in name or torch.allclose(value, state[name], atol=close), name
    assert said in "".join(lines)
    assert bool(lines) == bool(said)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "last.ckpt", "best.pth.tar", "weights", "w.v2.pt", "Modell ü.pth"]
)
def test_any_name_will_do(tmp_path: Path, state: State, name: str) -> None:
    model, _ = loaded(tmp_path, state, name)
    assert torch.equal(model.get_parameter("0.weight"), state["0.weight"])


def test_the_old_format_and_safetensors_by_another_name_will_do(tmp_path: Path, state: State) -> None:
    from safetensors.torch import save_file

    model, _ = loaded(tmp_path, state, _use_new_zipfile_serialization=False)
    assert torch.equal(model.get_parameter("0.weight"), state["0.weight"])
    save_file(prefixed("module.", state), tmp_path / "model.bin")
    model = build(ModelSpec(f"{tmp_path}/net.py:build", weights=str(tmp_path / "model.bin")))
    assert torch.equal(model.get_parameter("2.bias"), state["2.bias"])


class Runs:
    """Runs a command where pickle loads it."""

    def __reduce__(self) -> Any:
        return os.mkdir, (str(Path(sys.argv[0]).parent / "ran"),)


def quantised(state: State) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such tensors will go some day
        return {n: torch.quantize_per_tensor(v, 0.1, 0, torch.qint8) if v.ndim == 2 else v for n, v in state.items()}


REFUSED: list[tuple[str, Callable[[State], Any], str]] = [
    ("integer codes", lambda state: {n: (v * 9).to(torch.int8) for n, v in state.items()}, "int8.*codes of quantised"),
    ("quantised", quantised, "is quantised"),
    ("nan", lambda state: {**state, "2.weight": state["2.weight"] * torch.nan}, "'2.weight' of .* has 8 of 8 values"),
    ("one inf", lambda state: {**state, "0.bias": torch.tensor([0, torch.inf, 1, 2])}, "'0.bias' of .* has 1 of 4"),
    ("nan in a norm", lambda state: {**state, "1.running_var": torch.full((4,), torch.nan)}, "'1.running_var'"),
    ("another head", lambda state: {**state, "2.bias": torch.ones(7)}, r"'2.bias' is \[2\] in the model, \[7\]"),
    ("no tensors", lambda _: {"epoch": 1}, "holds a dict with epoch"),
    ("a list", lambda state: list(state.values()), "holds a list"),
    ("a whole module", lambda _: nn.Linear(2, 2), "state_dict"),
    ("another model", lambda _: {"a.weight": torch.ones(2)}, "has 'a.weight', which the model does not have"),
    ("complex", lambda state: {**state, "2.bias": torch.ones(2, dtype=torch.complex64)}, "complex64"),
]


@pytest.mark.parametrize(("kind", "saved", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_no_weights_is_one_line(
    tmp_path: Path, state: State, kind: str, saved: Callable[[State], Any], message: str
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        loaded(tmp_path, saved(state))
    assert "\n" not in str(caught.value), kind
    assert "\x1b" not in str(caught.value), kind


def test_nothing_in_a_file_runs(tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "x")])
    for saved in ({"state_dict": state, "hook": Runs()}, [Runs()]):
        with suppress(TaskError):
            loaded(tmp_path, saved)
        assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_archive_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    torch.jit.script(nn.Linear(3, 4)).save(tmp_path / "w.pt")  # type: ignore[no-untyped-call]
    with pytest.raises(TaskError, match=r"is a TorchScript archive, whose code is not run: save"):
        build(ModelSpec(f"{tmp_path}/net.py:build", weights=str(tmp_path / "w.pt")))
