"""Which strategies go together: what the page says, and that a plan with every such pair does all that a plan does."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.bundles import exported_bundle
from tests.sessions import opened
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.runtime import Bundle, Personaliser
from tuner.store.store import Store
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner.task.spec import InputSpec
from tuner_testing.models.pairs import LEFT_OUT, ROUNDS, Pairs, installed_pairs
from tuner_watch.round import trainer_of

ROOT = Path(__file__).parents[3]


@cache
def pairs() -> Pairs:
    return installed_pairs()


def test_the_page_has_the_table_and_every_empty_cell_a_reason() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    assert f"\n{pairs().table()}\n" in page
    reasons = pairs().reasons()
    assert [reason for reason in reasons.values() if "have no effect together" in reason] == []
    assert {*LEFT_OUT} <= {frozenset(pair) for pair, reason in reasons.items() if reason}


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_every_two_that_go_together_train_export_predict_and_train_again(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = replace(digits(), augment=("shift",), input=InputSpec("arrays", size=8))
    own = Pairs(pairs().host, opened(TorchBackend(), task).sized([6]), task_info(task))
    for number, group in enumerate(pairs().groups()):
        with subtests.test(" ".join(group)):
            plan = own.plan(group)
            assert not isinstance(plan, str), plan
            if plan.heads.exits:  # so poor ones, of so little training, are pruned otherwise
                plan = replace(plan, heads=replace(plan.heads, supervised=1.0, tolerance=0.5))
            backend = OrtBackend() if plan.runtime.backend == "onnxruntime" else TorchBackend()
            folder, val = tmp_path / str(number), task.at(plan.size).local.val
            samples = np.stack([val.load(row) for row in range(8)])
            out = exported_bundle(task, folder, plan, backend, Store(tmp_path / "store"), trainable=ROUNDS in group)
            assert len(Personaliser(Bundle.open(out)).predict_batch(samples)) == len(samples)
            if ROUNDS in group:
                trainer = trainer_of(Bundle.open(out), 1)
                trainer.add(list(samples), [str(label) for label in task.local.val.labels[: len(samples)]])
                trainer.train(epochs=1)
                again = Personaliser(Bundle.open(trainer.save(folder / "again")))
                assert len(again.predict_batch(samples)) == len(samples)
