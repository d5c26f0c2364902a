"""The commands of priors: prior build, prior show."""

from pathlib import Path

from cyclopts import App

from tuner.cli.options import Json, OutFile, document, note, print_line, stdout_console

prior_app = App(name="prior", help="Keep plans that did well on earlier tasks; tuner run --prior tries them first.")


@prior_app.command(name="build")
def build(*runs: str, out: OutFile = Path("prior.toml"), json_output: Json = False) -> None:
    """Write the plans of runs' fronts and their expected results as a prior, a file without names or paths.

    Parameters
    ----------
    runs
        Folders of runs, or addresses of studies that several workers share; at least one.
    out
        The file to write.
    """
    from tuner.errors import UsageError
    from tuner.results.prior.file import write_prior
    from tuner_priors.portfolio import build_prior

    if not runs:
        raise UsageError("a prior needs at least one run: tuner prior build RUN")
    prior = build_prior(runs, note)
    write_prior(out, prior)
    plans, tasks = len(prior.plan), len(prior.task)
    if json_output:
        print_line(document("prior-build-1", {"prior": str(out), "plans": plans, "tasks": tasks}))
    else:
        print_line(f"{out}: {plans} plans from {tasks} run{'' if tasks == 1 else 's'}")


@prior_app.command(name="show")
def show(file: Path, /, *, json_output: Json = False) -> None:
    """Show the tasks that a prior was built from, and its plans with their expected results.

    Parameters
    ----------
    file
        A file from `tuner prior build`, or `shipped`.
    """
    from dataclasses import asdict

    from tuner.search.space import load_prior
    from tuner_priors.text import print_prior

    prior = load_prior(file)
    if json_output:
        print_line(document("prior-1", asdict(prior)))
    else:
        print_prior(prior, stdout_console())
