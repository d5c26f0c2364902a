"""The page that is added to a bundle: it predicts, and trains again, in a browser."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from tuner.bundle.format import INPUT, file_hash
from tuner.bundle.info import BundleInfo
from tuner.errors import BundleError

#: What ``web/build.mjs`` has built, and the folder of ONNX Runtime's own files in it and in a page.
BUILT, RUNTIME = Path(__file__).parents[1] / "web", "ort"
#: Names and hashes of these files: not a part of the page.
NEEDED = "onnxruntime-web.json"
FOLDER = "web"


def page_files(runtime: Path | None = None) -> dict[str, Path]:
    """Return the page's files by their path in its folder, before anything is exported.

    Args:
        runtime: Folder ``dist`` of the npm package onnxruntime-web; what was installed with tuner where it is None.

    Raises:
        BundleError: ONNX Runtime's files are not there, or are of another version.
    """
    needed = json.loads((BUILT / NEEDED).read_bytes())
    folder, version = runtime or BUILT / RUNTIME, needed["version"]
    for name, digest in needed["files"].items():
        path = folder / name
        if not path.is_file():
            raise BundleError(
                f"the page needs {name} of onnxruntime-web {version}, but {folder} does not have it: "
                "`make web` in a checkout fetches it once, or give the package's folder dist by --web-runtime"
            )
        if file_hash(path) != digest:
            raise BundleError(f"{path} is not that of onnxruntime-web {version}: give this version")
    own = {path.name: path for path in BUILT.iterdir() if path.is_file() and path.name != NEEDED}
    return own | {f"{RUNTIME}/{name}": folder / name for name in needed["files"]}


def require_page(info: BundleInfo, way_out: str = "use tuner predict") -> None:
    """Refuse a bundle of anything but photos, and sounds that the bundle's own model cuts into patches."""
    kind = info.input.kind
    if kind != "images" and INPUT not in info.files:
        raise BundleError(f"the page takes photos, and sounds with {INPUT}, but {info.name} takes {kind}: {way_out}")


def add_page(files: Mapping[str, Path], bundle: Path, info: BundleInfo) -> None:
    """Copy the page into the folder of a bundle; its files are not the bundle's, which rounds of training copy.

    All files can then be read by every user of the machine, so that a web server with a user of its own can serve them.
    """
    require_page(info, "leave out --web")
    for name, source in files.items():
        target = bundle / FOLDER / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    for path in (bundle, *bundle.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
