"""A bundle whose head a plugin solves for from sums learns again on a device: by the plugin, without PyTorch."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.plugin.installed import install
from tests.runtime.bundles import trainable_bundle
from tuner.bundle.format import FILE, WEIGHTS, Bundle
from tuner.errors import BundleError
from tuner.plan.parts import EditTraits, TailEdit
from tuner.plugin.core import build_host
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded
from tuner.runtime import SolvingTrainer
from tuner.runtime.train.files import REPLAY, replay_of
from tuner.runtime.train.solved import SolvedFile
from tuner.task.builtin import digits

RECIPE = Path(__file__).parents[3] / "docs" / "cookbook" / "slda.py"
NAME, SHRINKAGE = "tuner_slda", 1e-2
EDIT = TailEdit.of("slda", EditTraits(solves=True), shrinkage=SHRINKAGE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of packages in which the recipe is installed."""
    folder = tmp_path_factory.mktemp("site") / "site"
    install(folder, NAME, RECIPE.read_text(encoding="utf-8"), "0.1")
    return folder


@pytest.fixture(scope="module")
def bundle(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("TUNER_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = trainable_bundle(digits(), tmp_path_factory.mktemp("solved"), 3, shape=(EDIT,))
        content = json.loads((made / FILE).read_text())
        (made / FILE).write_text(json.dumps({**content, "plugins": {NAME: "tuner-slda 0.1"}}))
        yield made


def photos(folder: Path, count: int) -> Path:
    """Write digits that the user writes a pixel further down, by class folders; return their folder."""
    samples = digits().local.test
    assert samples is not None
    for row in range(count):
        path = folder / str(samples.labels[row]) / f"{row}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.roll(samples.load(row), 1, axis=1))
    return folder


def discriminant(features: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], outputs: int) -> LinearHead:
    """Return the paper's head of all samples at once: means, and one covariance, without sums."""
    rows, places = np.unique(labels, return_inverse=True)
    means = np.stack([features[labels == row].mean(axis=0) for row in rows])
    spread = np.cov((features - means[places]).T, bias=True)
    weight, bias = np.zeros((outputs, features.shape[1])), np.full(outputs, -1e4)
    weight[rows] = np.linalg.solve((1 - SHRINKAGE) * spread + SHRINKAGE * np.eye(len(spread)), means.T).T
    bias[rows] = -(weight[rows] * means).sum(axis=1) / 2
    return LinearHead(weight, bias)


@pytest.mark.slow
def test_it_learns_again_without_pytorch_as_if_all_samples_were_solved_for_at_once(
    bundle: Path, site: Path, tmp_path: Path
) -> None:
    folder, out = photos(tmp_path / "samples", 60), tmp_path / "out"
    words = ["watch", str(bundle), "--samples", str(folder), "--enough", "20", "--any-time", "--once", "--json"]
    code = f"""import sys; sys.path.insert(0, {str(site)!r}); sys.modules.update(torch=None)
from pathlib import Path
from tuner.cli.app import call
from tuner.runtime import SolvingTrainer
trainer, files = SolvingTrainer({str(bundle)!r}, threads=1), sorted(Path({str(folder)!r}).rglob("*.npy"))
own = trainer.samples
trainer.add(files, [file.parent.name for file in files])
trainer.train()
assert trainer.samples == own + len(files), trainer.samples
assert len(trainer.left_out) == trainer.samples
assert all(flags.mean() > 0.85 for flags in trainer.earlier_right()[:2])
trainer.save({str(out)!r})
assert call({words}) == 0"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    rounds = [event for event in map(json.loads, done.stdout.splitlines()) if "round" in event]
    assert [event["round"] for event in rounds] == ["accepted"], done.stdout

    made = Bundle.open(out)
    file, replay = SolvedFile.load(made), replay_of(made, REPLAY)
    known = coded(replay.read(np.arange(len(replay))), file.step)
    features = np.concatenate([file.codes, known]) * file.step
    wanted = discriminant(features, np.concatenate([file.labels, replay.labels]), len(made.labels))
    assert made.info.train is not None
    weight, bias = (load_file(out / WEIGHTS)[name] for name in made.info.train.weights)
    np.testing.assert_allclose(weight, wanted.weight, atol=1e-5 * np.abs(wanted.weight).max())
    np.testing.assert_allclose(bias, wanted.bias, rtol=1e-5)


@pytest.mark.slow
def test_a_bundle_says_which_plugin_to_install_and_predicts_without(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Bundle.open(bundle).info.train
    assert train is not None
    assert (train.kind, train.solver) == ("sums", NAME)
    monkeypatch.setenv("TUNER_PLUGINS", f"-{NAME}")
    with pytest.raises(BundleError, match=r"or switched off: install tuner-slda 0\.1, or remove -\S+ from TUNER_PLUG"):
        SolvingTrainer(bundle)


@pytest.mark.slow
def test_a_plugin_that_is_a_file_cannot_be_exported_to_learn(bundle: Path, tmp_path: Path) -> None:
    added = build_host(local=[RECIPE]).extensions("torch")
    from tuner.backends.torch.trial.edits.solved import solver_of

    with pytest.raises(BundleError, match="is for heads that installed plugins solve for, and 'slda' is a file"):
        solver_of(added, Bundle.open(bundle).plan())
