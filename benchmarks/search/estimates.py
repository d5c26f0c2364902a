"""Memory that is expected of a plan before any trial, next to what its trial then takes: 20 plans of three tasks.

Plans are drawn at random from the spaces of `benchmarks.search.feasible`: digits, EMG (muscle signals) and clothing
(MobileNetV2 at 160 px, any depth). Each is trained in a process of its own, as a study's trials are, without a limit on
memory; two epochs, as more of them take no more memory. The expected bytes come from this device's measured rates, and
where the planned executor runs the steps, from its plan. Both are of training alone: the memory of filling the store is
measured once, and would hide the rest.
"""

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.search.feasible import Composer, space_of, task_from, task_of
from tuner.backends.base import Trial
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.planner.device import Rates
from tuner.planner.price import price
from tuner.planner.tail_terms import worth_planning
from tuner.plugin.core import build_host
from tuner.plugin.sources import random_values
from tuner.search.estimate.rates import rates_of
from tuner.search.estimate.step_memory import expected_bytes
from tuner.search.processes.remote import RemoteSession, open_remote
from tuner.store.store import Store

#: Plans of each task: 20 in all.
PLANS = {"digits": 7, "EMG": 6, "clothing": 7}
QUICK_PLANS, EPOCHS, BOUND = 2, 2, 1.3


def main() -> None:
    """Train the plans, print, write."""
    parser = benchmark_parser(__doc__, f"{QUICK_PLANS} plans of each task")
    parser.add_argument("--tasks", nargs="+", choices=PLANS, default=list(PLANS))
    asked = parser.parse_args()
    rows = [row for name in asked.tasks for row in rows_of(name, QUICK_PLANS if asked.quick else PLANS[name])]
    finish("estimates", rows, claims(rows), asked.json)


def rows_of(name: str, plans: int) -> Iterator[Row]:
    """Yield what was expected of each plan of a task, and what it took."""
    with tempfile.TemporaryDirectory(prefix="tuner-benchmark-") as root:
        os.environ["TUNER_CACHE"] = root
        task, store, draw = task_of(name), Store(Path(root) / "store"), random_values(random.Random(0))
        with open_remote(build_host(), task, ["torch"], many_jobs=True) as opened:
            session = opened["torch"]
            rates = rates_of(session, "torch", measure=True)
            composed = Composer(space_of(name, Path(root)), task_from(task), session)
            for number in range(plans):
                plan = composed(draw).plan
                plan = replace(plan, recipe=replace(plan.recipe, epochs=EPOCHS))
                session.fill([plan], store)
                outcome = session.train(Trial(plan, number, store, Path(root) / "weights.safetensors"))
                expected, measured = expected_of(plan, rates, session), outcome.values["peak_bytes"]
                yield {
                    "task": name,
                    "expected MB": expected / 1e6,
                    "measured MB": measured / 1e6,
                    "ratio": expected / measured,
                    "plan": describe(plan),
                }


def expected_of(plan: TrialPlan, rates: Rates, session: RemoteSession) -> int:
    """Return the bytes that are expected of a plan's training."""
    step = session.plan_step(plan) if worth_planning(plan) else None
    if step is None:
        priced = price(plan, rates)
        return priced.tensor_bytes + priced.library_bytes
    return expected_bytes(plan, step, replace(rates, fill_peak_bytes=0) if plan.cached else rates)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Hold the plans against the bound."""
    off = [max(ratio, 1 / ratio) for row in rows if isinstance(ratio := row["ratio"], float)]
    return [
        Claim(
            f"the memory of each plan is expected within a factor of {BOUND}, before any trial",
            f"≤ {BOUND}×",
            f"at most {max(off):.2f}×, {median(off):.2f}× in the median, {sum(one <= BOUND for one in off)} of "
            f"{len(off)} plans within",
            max(off) <= BOUND,
        )
    ]


if __name__ == "__main__":
    main()
