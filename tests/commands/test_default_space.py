"""The default search space on the built-in task: every cut is tried, and no trial ends at chance."""

from collections import Counter
from pathlib import Path

import pytest

import tuner
from tuner.commands.runs.show import as_json
from tuner.results.records.trial import SCORED

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


def test_every_cut_is_tried_and_no_trial_ends_at_chance(tmp_path: Path) -> None:
    run = tuner.run("digits", trials=14, out=tmp_path / "run", store=tmp_path / "store", progress=False)
    scored = [record for record in run.records if record.state in SCORED and not record.rung]
    free = max(run.info.task.most_frequent, run.info.untouched.values.get("local_accuracy", 0.0))
    assert len(scored) >= 10
    assert min(record.values["local_accuracy"] for record in scored) > free + 0.2
    cuts = as_json(run)["cuts"]
    depths = run.info.model.depths
    assert [cut["blocks"] for cut in cuts if cut["tried"] and cut["blocks"] != 1] == [0, *depths]
    lines = Counter(record.plan.line() for record in scored if record.plan is not None)
    assert max(lines.values()) > 1, "some training is continued by a trial with more epochs"
    assert run.best is not None
    assert run.record(run.best).values["local_accuracy"] >= 0.95
