"""The command of priors: prior build."""

import json
from pathlib import Path

from cyclopts import App

from tuner.cli.options import Json, OutFile, print_line

prior_app = App(name="prior", help="Write plans that a search space can name, so that a study tries them first.")


@prior_app.command(name="build")
def build(*runs: Path, out: OutFile = Path("prior.toml"), json_output: Json = False) -> None:
    """Write the plans of runs' fronts as a prior; a search space names it as prior = "prior.toml".

    Parameters
    ----------
    runs
        Folders of runs, at least one.
    out
        The file to write.
    """
    from tuner.errors import RunError, UsageError
    from tuner.results.prior import prior_of, write_prior
    from tuner.results.run import Run

    if not runs:
        raise UsageError("a prior needs at least one run: tuner prior build RUN")
    prior = prior_of([Run.open(run) for run in runs])
    if not prior.plans:
        raise RunError("the runs have no front to take plans from: give runs with trials that ended")
    write_prior(out, prior)
    content = {"prior": str(out), "plans": len(prior.plans)}
    print_line(json.dumps(content) if json_output else f"{out}: {len(prior.plans)} plans")
