"""The methods of `benchmarks.methods`: which plugin or strategies each is, what it tries, and what its paper claims."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.plan.example import example_model
from tuner.plan.parts import Scalar
from tuner.plugin.core import build_host

COOKBOOK = Path(__file__).parents[2] / "docs" / "cookbook"
#: Learning rates that each method with steps tries.
RATES = ("recipe.learning_rate", (1e-3, 3e-4, 3e-3))
#: Name of the row that all others are compared with.
BASELINE = "fine-tuning"


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table.

    Attributes:
        name: Its name.
        title: What the page calls it.
        claim: What the paper says of it.
        source: Paper, with its venue.
        file: Plugin of one file; None where the strategies are installed.
        strategies: Installed strategies that take part, next to the plugin's own.
        knobs: Values that differ from the ones of all methods.
        tried: A knob, and its values to choose from on validation samples.
        replays: Whether old samples are mixed in.
        note: What differs from the paper.
    """

    name: str
    title: str
    claim: str = ""
    source: str = ""
    file: Path | None = None
    strategies: tuple[str, ...] = ()
    knobs: Mapping[str, Scalar] = field(default_factory=dict)
    tried: tuple[str, tuple[Scalar, ...]] = RATES
    replays: bool = True
    note: str = ""


def _plugin(name: str, title: str, claim: str, source: str, **others: object) -> Method:
    return Method(name, title, claim, source, COOKBOOK / f"{name}.py", **others)  # type: ignore[arg-type]  # of the class


METHODS = (
    Method(BASELINE, "fine-tuning", note="the tail trains; a tenth of the old samples is mixed in"),
    Method("no-replay", "fine-tuning without old samples", replays=False),
    Method("head", "head only", knobs={"freeze.trainable_blocks": 1}, note="a linear probe"),
    _plugin(
        "simpleshot", "SimpleShot",
        "centred features of length one and the nearest class mean are better than earlier results in 3 of 5 settings "
        "of miniImageNet", "Wang et al., arXiv 1911.04623, 2019",
        note="means have length one too",
    ),
    _plugin(
        "slda", "SLDA",
        "better than incremental batch learning and streaming learning on ImageNet and CORe50; next to the network it "
        "stores 0.001 GB, where iCaRL stores 3.011", "Hayes and Kanan, CVPR workshops 2020",
        tried=("slda.shrinkage", (1e-4, 1e-2, 1e-1)),
    ),
    _plugin(
        "fecam", "FeCAM",
        "best of methods that keep no samples, in continual learning with many and with few samples of a class",
        "Goswami et al., NeurIPS 2023",
        tried=("fecam.shrinkage", (1.0, 10.0, 100.0)), note="one covariance for all classes if many were large",
    ),
    _plugin(
        "ranpac", "RanPAC",
        "20 to 62 % fewer errors than earlier methods without stored samples, on seven class-incremental data sets "
        "with ViT-B/16", "McDonnell et al., NeurIPS 2023",
        tried=("ranpac.ridge", (1e-3, 1e-2, 1e-1)), note="2,000 random features; no first-session adaptation",
    ),
    _plugin(
        "tip_adapter", "Tip-Adapter",
        "without training, about as good as few-shot methods of CLIP that train; +1.7 points on ImageNet with 16 "
        "samples a class", "Zhang et al., ECCV 2022",
        tried=("tip_adapter.alpha", (1.0, 10.0, 100.0)), note="the given head stands for CLIP's texts",
    ),
    _plugin(
        "lp_ft", "LP-FT",
        "than fine-tuning, 1 point better on the distribution that it trains on and 10 on others, over ten shifts",
        "Kumar et al., ICLR 2022", knobs={"lp_ft.probing": 0.5},
    ),
    _plugin(
        "solve_again", "solve again",
        "a head in closed form is solved for after adapters were trained in the first session; 20 to 62 % fewer errors "
        "than earlier methods, with a random layer between them", "McDonnell et al., NeurIPS 2023, abstract and "
        "algorithm 1", knobs={"solve_again.use": True}, note="no random layer",
    ),
    _plugin(
        "wise_ft", "WiSE-FT",
        "4 to 6 points more under distribution shift than earlier work, and 1.6 more on ImageNet",
        "Wortsman et al., CVPR 2022", knobs={"wise.share": 0.5}, replays=False, note="half of the way",
    ),
    _plugin(
        "model_soup", "model soup",
        "better than the best model of a sweep, at the cost of one at inference; 90.94 % on ImageNet with ViT-G",
        "Wortsman et al., ICML 2022", knobs={"model_soup.models": 3, "recipe.schedule": "constant"},
        note="three trainings of a third of the epochs, which differ in the order of samples",
    ),
    _plugin(
        "fisher_layers", "TinyTrain's choice of layers",
        "3.6 to 5.0 points more than fine-tuning the whole network, with up to 1,098 times less memory",
        "Kwon et al., ICML 2024", knobs={"fisher_layers.share": 0.5}, note="layers only; no meta-training",
    ),
    Method(
        "bitfit", "BitFit",
        "on small to medium data competitive with fine-tuning of BERT, sometimes better; on larger data competitive "
        "with other sparse fine-tuning", "Ben Zaken et al., ACL 2022, abstract",
        strategies=("bias",), knobs={"bias.scales": False},
    ),
    Method(
        "lora", "LoRA",
        "on par with fine-tuning or better on RoBERTa, DeBERTa, GPT-2 and GPT-3, with 10,000 times fewer weights of "
        "GPT-3 that train", "Hu et al., ICLR 2022, abstract", strategies=("lora",),
    ),
    _plugin(
        "dora", "DoRA",
        "better than LoRA at the same rank; 4.4 points on commonsense questions with LLaMA 3 8B",
        "Liu et al., ICML 2024", knobs={"dora.rank": 4},
    ),
    _plugin(
        "ssf", "SSF",
        "90.72 % next to 88.54 of fine-tuning on FGVC, 73.10 next to 65.57 on VTAB-1k, with 0.3 million new weights",
        "Lian et al., NeurIPS 2022", knobs={"ssf.use": True},
    ),
    _plugin(
        "l2_sp", "L2-SP", "better than weight decay towards zero in transfer, the more so the less data there is",
        "Li et al., ICML 2018", knobs={"l2_sp.strength": 0.01},
    ),
    _plugin(
        "ewc", "EWC",
        "networks stay good at tasks that they have not seen for a long time: of handwritten digits, and Atari games",
        "Kirkpatrick et al., PNAS 2017, abstract", knobs={"ewc.strength": 100.0}, replays=False,
        note="the Fisher information is that of the user's samples: a plugin gets no others before training",
    ),
    Method(
        "lwf", "LwF",
        "without old data better than feature extraction and fine-tuning, and about as good as training on old and new "
        "data; where these are alike, the new task may gain too", "Li and Hoiem, ECCV 2016, abstract",
        strategies=("distill",),
        knobs={"distill.weight": 1.0, "distill.temperature": 2.0}, replays=False,
    ),
    Method(
        "distillation", "distillation",
        "one network learns what an ensemble knows; the acoustic model of a system in use became significantly better",
        "Hinton et al., arXiv 1503.02531, 2015, abstract",
        strategies=("distill",), knobs={"distill.weight": 0.5, "distill.temperature": 2.0},
        note="from the given model, on old and new samples",
    ),
    _plugin(
        "der", "DER++", "better than replay and than earlier methods on Split CIFAR-10 and Tiny ImageNet",
        "Buzzega et al., NeurIPS 2020", knobs={"der.alpha": 0.2}, note="answers of the given model",
    ),
    _plugin(
        "mixup", "mixup",
        "better generalisation on ImageNet, CIFAR-10, CIFAR-100, spoken commands and UCI data, and less memorising of "
        "wrong labels", "Zhang et al., ICLR 2018, abstract", knobs={"mixup.strength": 0.2}, note="of stored features",
    ),
    _plugin(
        "sam", "SAM", "better on CIFAR, ImageNet and when fine-tuning, and robust to wrong labels",
        "Foret et al., ICLR 2021", note="a step takes twice the time",
    ),
    Method(
        "coreset", "coreset",
        "part of iCaRL, which learns many classes of CIFAR-100 and ImageNet one after another, where others quickly "
        "fail: samples whose mean is near that of the class", "Rebuffi et al., CVPR 2017, abstract",
        strategies=("coreset",),
    ),
)  # fmt: skip


def added(path: Path) -> Method:
    """Return the row of a stranger's plugin, a file or the folder of a package, at its strategies' first anchors.

    Their start values may do nothing. Of an anchor, the knobs of the strategy itself are taken.
    """
    file = path / "__init__.py" if path.is_dir() else path.resolve()
    name = path.resolve().name.removesuffix(".py")
    host, core = (build_host(local=files, installed=False) for files in ([file], []))
    own = [one for one in host.strategies.values() if one.name not in core.strategies]
    anchors = [(one.name, dict(first)) for one in own for first in [*one.anchors(example_model(4))][:1]]
    knobs = {knob: value for name, anchor in anchors for knob, value in anchor.items() if knob.startswith(f"{name}.")}
    if own and not knobs:
        print(f"{name}: it has no anchors: start values, at which it takes part, may do nothing", file=sys.stderr)
    return Method(name, name, file=file, knobs=knobs)
