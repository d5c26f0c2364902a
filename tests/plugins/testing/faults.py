"""Faults that authors of plugins make, as replacements in the source of a good plugin, and who names each.

Of those that composing a plan finds, one stands here: the others are in `tests.plugin.test_compose_faults`.
"""

from tests.plugins.testing.good import ANCHORED, ANCHORS, DRAW, MEMBER, OWN, RETURN, SAME, TRAITS, Fault, around

LEGAL, PURE = "plans are legal at both ends of every knob", "the same knobs give the same plan"
STAGE, SAVES = "only its own stage is written", "plans hash and read back equal"
MADE, SAVED = "it returns the edited tail", "what is saved is what was trained"
IMPORTED = "importing it is quick and loads no tensor library"
FAULTS = {
    "misspelt hook": Fault({"def tuner_strategies": "def tuner_strategy"}, host="no hook 'tuner_strategy' .did you"),
    "unmarked hook": Fault({"@hookimpl\ndef tuner_low": "def tuner_low"}, host="tuner_lowerings is not marked"),
    "misspelt argument": Fault({"lowerings(backend)": "lowerings(backends)"}, host="no argument 'backends'.*takes b"),
    "a name taken": Fault({'"seeded", ': '"recipe", '}, host="strategy 'recipe' .* is taken"),
    "the name of a stage": Fault({'"seeded", ': '"shape", '}, host="'shape' must not have the name of a stage, whose"),
    "a first-party name taken": Fault(
        {'"seeded", ': '"freeze", '},
        kit={"the host loads it": "it is refused: strategy 'freeze' has a name that is taken by plugin 'freeze': ren"},
    ),
    "a first-party kind taken": Fault(
        {'{"bias": lowered}': '{"low-rank": lowered}'},
        kit={"the host loads it": "tail edit 'low-rank' is a kind that plugin 'lora' realises: rename it"},
    ),
    "stage a string": Fault({"Stage.SHAPE": '"shape"'}, host="must set stage to a tuner.plugin.Stage, got 'shape'"),
    "slow import": Fault(
        {"import itertools": "import itertools, time\ntime.sleep(1)"},
        kit={IMPORTED: "importing tuner_seeded must take at most 0.5 s, but it takes 1\\.[0-9] s"},
    ),
    "tensor library at import": Fault(
        {"import itertools": "import itertools, onnxruntime"}, kit={IMPORTED: "but it loads onnxruntime: import it in"}
    ),
    "default outside its range": Fault(
        {DRAW: DRAW + ", start=99"}, kit={LEGAL: "must start inside its range, but start is 99"}
    ),
    "composes differently": Fault(
        {"full=full": "full=full + next(COUNT)"},
        kit={PURE: r"must give one plan .* two: plan\.shape\[0\]\.settings\[0\]\[1\] is \d+, then \d+: use"},
    ),
    "a foreign stage": Fault(
        {"return replace(plan, ": "return replace(plan, split=1, "},
        kit={STAGE: "strategy 'seeded' may write 'shape' only, but it wrote 'split'"},
    ),
    "drops what was written before the split": Fault(
        {
            '"seeded", Stage.SHAPE\n': '"seeded", Stage.SPLIT\n    writes = frozenset({Stage.SHAPE})\n',
            "(*plan.shape, TailEdit": "(TailEdit",
            "full=full))": "full=full),)",
        },
        kit={"what others wrote stays": "entries may only be added to shape, but it changed or removed one"},
    ),
    "returns no plan": Fault(
        {"return replace(plan, ": "replace(plan, "}, kit={STAGE: "apply must return a TrialPlan, but it returned None"}
    ),
    "a range that depends on a knob": Fault(
        {DRAW: '"full", 1, draw.integer("most", 1, model.num_blocks)'},
        kit={"no range depends on another knob": r"draw seeded\.full from one range, .* draw a fraction and scale it"},
    ),
    "writes a list": Fault(
        {"(*plan.shape, ": "[*plan.shape, ", "full=full))": "full=full)]"},
        kit={SAVES: r"shape must be of type tuple, got \["},
    ),
    "a setting that is no number": Fault(
        {"full=full": "full=None"}, kit={SAVES: "settings must be pairs of a name and a number, .*None"}
    ),
    "a setting that is not itself": Fault(
        {"full=full": "full=float('nan')"}, kit={LEGAL: "the setting full must be a finite number, got nan: give"}
    ),
    "sample never returns": Fault(
        {"return draw.choice": "while True: pass\n        return draw.choice"},
        kit={LEGAL: r"sample took longer than 2 s \(tuner_seeded.py, line 1"},
    ),
    "draws at random": Fault(
        {"return draw.choice": 'next(COUNT) % 2 and draw.choice("x", (1, 2))\n        return draw.choice'},
        kit={LEGAL: r"must draw the same knobs for the same values, but it drew seeded\.used and then seeded\.x"},
    ),
    "a knob without effect": Fault(
        {"full=full": "full=1"},
        kit={"every knob has an effect": r"change the plan, but seeded\.full changes none"},
    ),
    "starts with an edit": Fault(
        {"(False, True)": "(True, False)"},
        kit={"its start does nothing": "must leave the shape of a plan as it is, but they give .* list plans to try f"},
    ),
    "excludes a misspelt name": Fault(
        {MEMBER: '    excludes = frozenset({"grwoth", "a_stranger"})\n\n' + MEMBER},
        kit={"it names strategies that there are": "there is no 'grwoth': did you mean 'growth'"},
    ),
    "an anchor of an unknown knob": Fault(
        {MEMBER: ANCHORS.format('{"seeded.used": True, "seeded.ful": 1}') + MEMBER},
        kit={ANCHORED: r"must name knobs, but there is no 'seeded\.ful': did you mean 'seeded\.full'"},
    ),
    "an anchor out of range": Fault(
        {MEMBER: ANCHORS.format('{"seeded.used": True, "recipe.optimiser": "none"}') + MEMBER},
        kit={ANCHORED: r"values that knobs have, got 'none', but recipe\.optimiser in \{"},
    ),
    "an anchor below zero": Fault(
        {MEMBER: ANCHORS.format('{"seeded.used": True, "recipe.batch_size": -16}') + MEMBER},
        kit={ANCHORED: r"values that knobs have, got -16, but recipe\.batch_size in \["},
    ),
    "an anchor of a misspelt stage": Fault(
        {MEMBER: ANCHORS.format('{"seeded.used": True, "splitb.y": "freeze"}') + MEMBER},
        kit={ANCHORED: r"there is no 'splitb\.y': did you mean 'split\.by'"},
    ),
    "an anchor of an unknown strategy": Fault(
        {MEMBER: ANCHORS.format('{"seeded.used": True, "split.by": "freze"}') + MEMBER},
        kit={ANCHORED: r"anchors must name strategies, but split\.by is 'freze'"},
    ),
    "composes with tensors": Fault(
        {"full=full": "full=full * bool(__import__('onnxruntime'))"},
        kit={
            "sampling and applying need no tensor library": "must compose plans without a tensor library, but "
            ".*onnxruntime.*: import it in the lowering"
        },
    ),
    "drops others' edits": Fault(
        {"(*plan.shape, ": "(*(), "}, kit={"what others wrote stays": "may only be added to shape, but it changed"}
    ),
    "no strategy emits the kind": Fault({'{"bias": lowered}': '{"bais": lowered}'}, kit={MADE: "'bais': a strategy"}),
    "raises while lowering": Fault(
        {RETURN: "    return tail.modul\n"},
        kit={MADE: r"AttributeError: .*'modul' \(tuner_seeded.py, line 25\)"},
        trial=r"AttributeError: .*'modul' \(tuner_seeded.py, line 25\)",
    ),
    "returns None": Fault(
        {RETURN: "    tail.module\n"},
        kit={MADE: "it must return the edited tail, .* but it returned None: end it with"},
        trial="it must return the edited tail, .* but it returned None: end it with",
    ),
    "logits of another size": Fault(
        {RETURN: around("return self.inner(value)[:, 1:]")},
        kit={MADE: r"must give logits \[2, 5\] for two samples, but it gives \[2, 4\]"},
        trial=r"lowering 'bias': its tail must give logits \[2, 10\] for two samples, but it gives \[2, 9\]",
    ),
    "NaN in evaluation": Fault(
        {RETURN: around("return self.inner(value) * (1 if self.training else float('nan'))")},
        kit={MADE: "its tail must give finite logits in evaluation mode"},
        trial="lowering 'bias': its tail must give finite logits in evaluation mode",
    ),
    "NaN in evaluation, once it is trained": Fault(
        {TRAITS: OWN, RETURN: around("return self.inner(value) * (float('nan') if self.calls > self.training else 1)")},
        kit={SAVED: "after training, its tail must give finite logits|the loss became nan"},
        trial="lowering 'bias': after training, its tail must give finite logits|the loss became nan",
    ),
    "deepcopies the tail": Fault(
        {RETURN: "    import copy\n    return copy.deepcopy(tail.module)\n"},
        kit={MADE: "what trains must be weights of the given layers, but .* is not: change weights in place by"},
        trial="lowering 'bias': what trains must be weights of the given layers",
    ),
    "LoRA by setattr": Fault(
        {
            RETURN: "    import torch\n"
            "    class LoRA(torch.nn.Module):\n"
            "        def __init__(self, kept):\n"
            "            super().__init__()\n"
            "            self.kept, self.up = kept, torch.nn.Parameter(torch.zeros(kept.out_features, 1))\n"
            "        def forward(self, value):\n"
            "            return self.kept(value) + value[:, :1] @ self.up.T\n"
            "    for name, layer in list(tail.module.named_modules()):\n"
            "        if layer is tail.head:\n"
            "            tail.module.set_submodule(name, LoRA(layer))\n" + RETURN
        },
        kit={MADE: "what trains must be weights of the given layers, but .* is not"},
        trial="what trains must be weights of the given layers, but .* is not",
    ),
    "freezes everything": Fault(
        {"value.ndim == 1": "False", '[: -settings["full"]]': ""},
        kit={MADE: "some weight must train, but all are frozen"},
        trial="lowering 'bias': some weight must train, but all are frozen",
    ),
    "random state names": Fault(
        {TRAITS: OWN, RETURN: around(SAME, "self.register_buffer(f'b{next(COUNT)}', torch.ones(1))")},
        kit={"names are the same each time": "must give a tail of the same names and shapes each time, but 'b"},
    ),
    "starts elsewhere": Fault(
        {RETURN: "    tail.head.weight.data.mul_(3)\n" + RETURN},
        kit={"it starts as the given model": "must compute what the given one does, but logits differ"},
    ),
    "starts elsewhere next to the given tail": Fault(
        {
            TRAITS: "TRAITS = EditTraits(keeps_weights=False, keeps_given=True)",
            RETURN: "    tail.head.weight.data.mul_(3)\n" + RETURN,
        },
        kit={"it starts as the given model": "must compute what the given one does, but logits differ"},
    ),
    "trains what it froze": Fault(
        {
            RETURN: around(
                "self.kept.data.add_(self.training)\n            return self.inner(value)",
                "self.kept = tail.head.bias.requires_grad_(False)",
            )
        },
        kit={"something trains and what it froze stays": "what requires_grad froze must stay, but 'kept' moved"},
    ),
    "trains a number": Fault(
        {TRAITS: OWN, RETURN: around("return self.inner(value) * (1 + self.calls)")},
        kit={SAVED: "the saved tail must compute what was trained, but logits differ by"},
    ),
    "draws noise of its own": Fault(
        {
            TRAITS: OWN,
            RETURN: around(
                "return self.inner(value + self.training * torch.randn(value.shape, generator=self.noise))",
                "self.noise = torch.Generator().manual_seed(0)",
            ),
        },
        kit={"an interrupted training continues bit for bit": "must end as if it had not stopped, but .* differs"},
    ),
    "looks at the batch": Fault(
        {TRAITS: OWN, RETURN: around(f"{SAME} - self.inner(value).mean(0)")},
        kit={MADE: "logits must not depend on the others of a batch, but alone they differ by"},
    ),
    "restores nothing": Fault(
        {
            TRAITS: "TRAITS = EditTraits(keeps_weights=False, traceable=False)",
            RETURN: """
    import torch
    from tuner.plugin import Evolving
    class Counting(Evolving, torch.nn.Sequential):
        epochs = 0
        def after_epoch(self, epoch, room=None):
            self.epochs = epoch
            return {}
        def state(self):
            return {"epochs": self.epochs}
    return Counting(tail.module)
""",
        },
        kit={"an interrupted training continues bit for bit": "`restore` must bring back what `state` returned"},
    ),
    "restores nothing of what comes late": Fault(
        {
            TRAITS: "TRAITS = EditTraits(keeps_weights=False, traceable=False)",
            RETURN: """
    import torch
    from tuner.plugin import Evolving
    class Late(Evolving, torch.nn.Sequential):
        late = False
        def after_epoch(self, epoch, room=None):
            self.late = epoch > 1
            return {}
        def state(self):
            return {"late": self.late}
    return Late(tail.module)
""",
        },
        kit={"an interrupted training continues bit for bit": "`restore` must bring back what `state` returned"},
    ),
    "breaks when nested": Fault(
        {RETURN: '    tail.module.get_submodule("5").weight.requires_grad_(False)\n' + RETURN},
        kit={"it nests with another edit": "after an edit that wraps the tail; layers are in tail.blocks, but: Attr"},
    ),
    "changes the prefix": Fault(
        {
            RETURN: "    import gc, torch\n"
            "    for one in gc.get_objects():\n"
            "        if type(one) is torch.nn.Conv2d:\n"
            "            one.weight.data.mul_(1.0001)\n" + RETURN
        },
        kit={"the frozen prefix stays as it is": "the frozen blocks must stay as they are, but .* changed"},
        trial="the frozen prefix changed while the tail was trained",
    ),
    "leaves hooks": Fault(
        {RETURN: "    tail.head.register_forward_hook(lambda *_: None)\n" + RETURN},
        kit={"no hooks are left": "the given layers must have no hooks, but '5' has one: remove it"},
    ),
    "keeps global state": Fault(
        {RETURN: "    tail.head.bias.requires_grad_(next(COUNT) % 2 == 0)\n" + RETURN},
        kit={"no state is global": "two tails of one seed must train the same, but .* keep nothing in the module"},
    ),
    "looks at values": Fault(
        {RETURN: around("return self.inner(value) * (1 if value.sum() > 0 else 1)")},
        kit={"its traits are true": "step must be traceable, but .* or give it EditTraits.traceable=False"},
    ),
    "cannot be exported": Fault(
        {
            TRAITS: "TRAITS = EditTraits(keeps_weights=False, traceable=False)",
            RETURN: around("return self.inner(value) * (1 if value.sum() > 0 else 1)"),
        },
        kit={"its export computes the same": "the trained tail must be exported as ONNX, but: "},
    ),
    "a setting that nobody reads": Fault(
        {'settings["full"]': "1"},
        kit={"every setting is read": "every setting must be read, but 'full' is not: use"},
    ),
    "an edit without effect": Fault(
        {"value.ndim == 1": "True"}, kit={"it makes a difference": "the tail trains as without it: is it ever used"}
    ),
    "an adapter next to a weight that trains": Fault(
        {
            RETURN: "    import torch\n"
            "    class Added(torch.nn.Module):\n"
            "        def __init__(self, weight):\n"
            "            super().__init__()\n"
            "            self.added = torch.nn.Parameter(torch.zeros_like(weight))\n"
            "        def forward(self, weight):\n"
            "            return weight + self.added\n"
            "    weight = tail.head.weight\n"
            "    torch.nn.utils.parametrize.register_parametrization(tail.head, 'weight', Added(weight))\n" + RETURN
        },
        kit={"what it adapts is frozen": "a weight with an adapter must be frozen, but .*5.*weight' trains too"},
    ),
    "a completing that sets nothing": Fault(
        {
            "EditTraits, Stage": "Completing, EditTraits, Stage",
            TRAITS: "TRAITS = EditTraits(keeps_weights=False, keeps_given=True)",
            RETURN: around(SAME).replace(
                "(torch.nn.Module):", "(torch.nn.Module, Completing):\n        complete = lambda self, samples: ()"
            ),
        },
        kit={"something trains and what it froze stays": "must set weights when training ends, but none moved"},
    ),
    "a completing that says that it keeps the weights": Fault(
        {
            "EditTraits, Stage": "Completing, EditTraits, Stage",
            TRAITS: "TRAITS = EditTraits(keeps_given=True)",
            RETURN: around(SAME).replace("(torch.nn.Module)", "(torch.nn.Module, Completing)"),
        },
        kit={"its traits are true": "what a `Completing` sets would be left out: give it EditTraits.keeps_weights=Fal"},
    ),
    "a weight that gets no gradient": Fault(
        {TRAITS: OWN, RETURN: around(SAME, "self.idle = torch.nn.Parameter(torch.zeros(3))")},
        kit={"something trains and what it froze stays": "requires a gradient must get one, but 'idle' gets none"},
    ),
    "a solver that registers its layer twice": Fault(
        {
            "EditTraits, Stage": "EditTraits, Solver, Stage",
            TRAITS: "TRAITS = EditTraits(keeps_weights=False, solves=True)",
            RETURN: around(SAME, "self.layer = tail.head").replace(
                "(torch.nn.Module):",
                "(torch.nn.Module, Solver):\n        solve = lambda self, samples: self.change()\n"
                "        def change(self):\n"
                "            self.layer.weight.data.mul_(2)\n",
            ),
        },
        kit={SAVED: "each weight must be saved once, but 'layer.weight' is 'inner.5.weight'"},
        trial="Some tensors share memory",
    ),
    "says that a setting acts after training": Fault(
        {TRAITS: 'TRAITS = EditTraits(after_training=("full",))'},
        kit={"its traits are true": "full must act in `finish` alone, but .* trains differently with it"},
    ),
}
