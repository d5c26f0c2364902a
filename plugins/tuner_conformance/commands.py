"""The commands on what a bundle computes: bundle conformance, bundle check."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from tuner.cli.options import Json, document, print_line

bundle_app = App(name="bundle", help="Check that two devices compute the same from a bundle.")


@bundle_app.command
def conformance(
    bundle: Path, /, *, out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None, json_output: Json = False
) -> None:
    """Write what this device computes from a bundle, to compare other devices and runtimes with it.

    Parameters
    ----------
    bundle
        A bundle's folder.
    out
        The set's folder [default: conformance in the bundle's folder].
    """
    from tuner.bundle.format import CONFORMANCE, Bundle
    from tuner.cli.fence import guarded
    from tuner.commands.limits import NO_LIMITS
    from tuner_conformance.files import write_set

    opened = Bundle.open(bundle)
    folder = bundle / CONFORMANCE if out is None else out
    with guarded("the bundle", NO_LIMITS):
        write_set(opened, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if json_output:
        print_line(document("bundle-conformance-1", {"folder": str(folder), "bytes": size}))
        return
    print_line(f"{folder}: {size / 1e6:.1f} MB; on another device: tuner bundle check {bundle}")


@bundle_app.command
def check(
    bundle: Path,
    /,
    *,
    conformance_set: Annotated[Path | None, Parameter(name="--set")] = None,
    json_output: Json = False,
) -> None:
    """Compare this device's results with a bundle's conformance set: predictions, images, training steps, the gate.

    Parameters
    ----------
    bundle
        A bundle's folder, or a zip of it.
    conformance_set
        The set's folder [default: conformance in the bundle's folder].
    """
    from tuner.bundle.archive import unpacked
    from tuner.bundle.format import CONFORMANCE, Bundle
    from tuner.cli.fence import guarded
    from tuner.commands.limits import NO_LIMITS
    from tuner.errors import BundleError
    from tuner_conformance.files import compared

    with unpacked(bundle) as folder, guarded("the bundle", NO_LIMITS):
        checks = compared(Bundle.open(folder), conformance_set or folder / CONFORMANCE)
    broken = [one.name for one in checks if not one.holds]
    if json_output:
        rows = [
            {
                "name": one.name,
                "difference": one.difference if one.difference == one.difference else None,
                "tolerance": one.tolerance,
                "values": one.values,
                "holds": one.holds,
            }
            for one in checks
        ]
        print_line(document("bundle-check-1", {"holds": not broken, "checks": rows}))
    else:
        for one in checks:
            verdict = "holds" if one.holds else "BROKEN"
            print_line(f"{verdict}  {one.name}: differs by {one.difference:.2g} at most, allowed {one.tolerance:g}")
    if broken:
        raise BundleError(
            f"{bundle} computes something else here ({', '.join(broken)}): compare the versions of onnxruntime"
        )
