"""YAMNet: its published names, its padding, and a head trained on frozen layers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model.graph.nodes import chain
from tuner.backends.torch.model.open.factory import fit
from tuner.backends.torch.model.open.load import load
from tuner.errors import TaskError
from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Pretrain, Task, open_task
from tuner.task.file.variables import default_data
from tuner_audio.yamnet import yamnet, yamnet_256

DATA = default_data(Path(__file__).parents[2])


def published(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random weights by the published names, without a head."""
    torch.manual_seed(seed)
    state = yamnet_256(3).state_dict()
    return {name.replace("_norm.", ".bn."): value for name, value in state.items() if not name.startswith("head")}


def test_published_weights_fit_without_their_head_where_that_is_trained() -> None:
    model = yamnet_256(5)
    with pytest.raises(TaskError, match=r"lacks 'head.weight' and 1 more"):
        fit(model, published(), "y.pth")
    fit(model, published(), "y.pth", needs_head=False)
    assert torch.equal(model.state_dict()["layer2.depthwise_conv.weight"], published()["layer2.depthwise_conv.weight"])
    state = published()
    del state["layer3.pointwise_conv.weight"]
    with pytest.raises(TaskError, match=r"lacks .layer3\.pointwise_conv\.weight"):
        fit(yamnet_256(5), state, "y.pth", needs_head=False)


def test_the_padding_is_that_of_tensorflow() -> None:
    model, patch = yamnet(2, layers=2).eval(), torch.randn(1, 1, 64, 96)
    expected = functional.conv2d(
        functional.pad(patch, (0, 1, 0, 1)), model.state_dict()["layer1.conv.weight"], stride=2
    )
    first = model.get_submodule("layer1")
    assert isinstance(first, nn.Sequential)
    assert torch.allclose(first[:2](patch), expected)
    with torch.inference_mode():
        assert yamnet(7)(torch.zeros(2, 1, 64, 96)).shape == (2, 7)
    with pytest.raises(TaskError, match="layers must be from 2 to 14"):
        yamnet(2, layers=15)


def test_what_runs_before_the_first_layer_is_a_part_of_every_prefix() -> None:
    model, patches = yamnet_256(3), torch.randn(2, 1, 64, 96)
    blocks = chain(model, patches[:1])
    assert len(blocks.blocks) == 12
    with torch.inference_mode():
        for cut in (1, 6, 11):
            assert torch.allclose(blocks.tail(cut)(blocks.prefix(cut)(patches)), model(patches), atol=1e-5), cut


def test_only_the_head_is_pretrained_where_the_weights_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    torch.save(published(), tmp_path / "y.pth")
    generator = np.random.default_rng(0)
    labels = np.eye(2, dtype=np.float32)[np.arange(12) % 2]
    patches = generator.normal(size=(12, 1, 64, 96)).astype(np.float32) + 8 * labels[:, 1, None, None, None]
    samples = ArraySamples(patches, labels, InputSpec(kind="arrays"))
    spec = ModelSpec(
        "tuner_audio.yamnet:yamnet_256",
        (("outputs", 2),),
        str(tmp_path / "y.pth"),
        Pretrain(epochs=40, learning_rate=0.05, batch_size=12),
    )
    domain = Domain(samples, samples)
    task = Task("y", spec, InputSpec(kind="arrays"), "multi-label", domain, domain, ("a", "b"), (0, 1), (0, 1))
    model = load(task).model
    state = model.state_dict()
    assert torch.equal(state["layer6.pointwise_conv.weight"], published()["layer6.pointwise_conv.weight"])
    assert torch.equal(state["layer1.conv_norm.running_mean"], published()["layer1.conv.bn.running_mean"])
    with torch.inference_mode():
        assert ((model(torch.from_numpy(patches)) > 0).float().numpy() == labels).mean() > 0.9


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="no shared data")
def test_the_clips_of_a_recording_are_on_one_side_of_the_example() -> None:
    from tests.plugins.audio.sounds import soundfile  # noqa: F401

    task = open_task(str(Path(__file__).parents[3] / "examples" / "sounds" / "task.toml"), look=False)
    sides = [{samples.origin(at) for at in range(len(samples))} for _, samples in task.partitions()]
    assert all(sides)
    assert len(set().union(*sides)) == sum(len(side) for side in sides) > 150
    assert len(task.labels) == len(task.head_rows) == 24
    assert (task.local.train.labels.sum(axis=1) >= 2).all()  # whoever has a label has its parents


@pytest.mark.data
@pytest.mark.skipif(DATA is None, reason="no shared data")
def test_the_published_weights_tell_sounds_apart() -> None:
    from tests.plugins.audio.sounds import soundfile  # noqa: F401
    from tuner_audio.bands import read_clip

    assert DATA is not None
    model = yamnet_256(2)
    fit(model, torch.load(DATA / "models/yamnet_256_audioset.pth", weights_only=True), "y", needs_head=False)
    model.head = torch.nn.Identity()
    means = {}
    for name in ("rain", "dog_bark", "helicopter"):
        for clip in sorted((DATA / "audio/esc10" / name).glob("1-*.ogg"))[:3]:
            bands = read_clip(clip).bands
            patches = np.stack([bands[:, at : at + 96] for at in range(0, bands.shape[1] - 95, 48)])[:, None]
            with torch.inference_mode():
                features = model.eval()(torch.from_numpy(patches)).mean(dim=0)
            means[name, clip.name] = features / features.norm()
    keys = list(means)
    likeness = torch.stack(list(means.values())) @ torch.stack(list(means.values())).T
    same = torch.tensor([[a[0] == b[0] and a != b for b in keys] for a in keys])
    other = torch.tensor([[a[0] != b[0] for b in keys] for a in keys])
    assert likeness[same].mean() > likeness[other].mean() + 0.05
