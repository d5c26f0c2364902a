"""Run the base package on an emulated ARM processor: `python -m tools.arm FOLDER`, which `make test-arm` runs.

FOLDER gets QEMU (Debian's static build), Debian's libraries and Python for arm64, the base package's wheels for aarch64
at the versions of constraints.txt, and bundles of digits that this machine exports. What is there is not fetched again.
Nothing is installed into the system: packages are unpacked, and no superuser is needed. Then both processors do what
`tools.portable` does, and the answers are compared. The emulated one also takes the 20 training steps of
`tools.kept_steps`, by ONNX Runtime and by LiteRT.
"""

import hashlib
import io
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools import arm_head, kept_steps
from tools.portable import allowed

ROOT = Path(__file__).resolve().parent.parent
MIRROR = "https://deb.debian.org/debian"
#: A static program. Under Debian 12's, QEMU 7.2, importing ONNX Runtime 1.31 crashes; under Debian 13's it does not.
EMULATOR = (
    "trixie",
    {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
    ("qemu-user",),
)
#: Debian 12's Python is 3.11, as Raspberry Pi OS has it, and as the tests run with.
LIBRARIES = (
    "bookworm",
    "arm64",
    (
        "libbz2-1.0",
        "libc6",
        "libcrypt1",
        "libexpat1",
        "libffi8",
        "libgcc-s1",
        "liblzma5",
        "libpython3.11-minimal",
        "libpython3.11-stdlib",
        "libsqlite3-0",
        "libssl3",
        "libstdc++6",
        "libuuid1",
        "python3.11-minimal",
        "zlib1g",
    ),
)
PYTHON = "3.11"
#: What wheels may ask of the system: glibc 2.34 or older; Debian 12 has 2.36.
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64", "manylinux_2_34_aarch64")
#: What the emulated processor gets besides the base package: it trains by LiteRT too.
LITERT = "ai-edge-litert"
VERSIONS = "import numpy, onnxruntime, platform; print(platform.machine(), platform.python_version(), \
numpy.__version__, onnxruntime.__version__)"


def base_requirements() -> list[str]:
    """Return what the base package needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["dependencies"])


def pinned() -> str:
    """Return a name for what is installed: another one where a requirement or a pinned version is another."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return hashlib.blake2b("\n".join([*base_requirements(), LITERT, pins]).encode(), digest_size=4).hexdigest()


def packages(index: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the SHA-256 of packages, from the text of Debian's index of packages.

    Raises:
        SystemExit: One is not there.
    """
    entries = {entry.partition("\n")[0]: entry for entry in index.split("\n\n")}
    for name in names:
        entry = entries.get(f"Package: {name}")
        if entry is None:
            sys.exit(f"{MIRROR} has no package {name}")
        fields = dict(re.findall(r"^(Filename|SHA256): (\S+)$", entry, re.MULTILINE))
        yield fields["Filename"], fields["SHA256"]


def unpack(package: bytes, digest: str, folder: Path) -> None:
    """Unpack a Debian package: an `ar` archive, of which one member is a tar of the files.

    Raises:
        SystemExit: It is not the package that the index names; or Python is too old to keep files in the folder.
    """
    if not hasattr(tarfile, "tar_filter"):
        sys.exit("packages are unpacked by Python 3.11.4 or newer")
    if hashlib.sha256(package).hexdigest() != digest:
        sys.exit("a package is not what Debian's index says: try again")
    at = len(b"!<arch>\n")
    while at < len(package):
        name, size = package[at : at + 16].decode().strip(" /"), int(package[at + 48 : at + 58])
        content = package[at + 60 : at + 60 + size]
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as files:
                files.extractall(folder, filter="tar")
        at += 60 + size + size % 2


def fetch(release: str, architecture: str, names: Sequence[str], folder: Path) -> None:
    """Unpack packages of Debian into a folder, unless they are there."""
    if folder.exists():
        return
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    print(f"fetching {len(names)} packages of Debian {release} for {architecture}", flush=True)
    index = lzma.decompress(_read(f"dists/{release}/main/binary-{architecture}/Packages.xz")).decode()
    for path, digest in packages(index, names):
        unpack(_read(path), digest, part)
    part.rename(folder)


def install(folder: Path) -> None:
    """Install this checkout's wheel, and the base package's wheels for aarch64, into a folder."""
    wheels = folder.with_name("wheel")
    shutil.rmtree(wheels, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, ROOT, quiet=True)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = (sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--only-binary=:all:")
    pins = ("--constraint", ROOT / "constraints.txt")
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        print("fetching wheels for aarch64", flush=True)
        _run(*pip, "--target", part, "--python-version", PYTHON, *platforms, *pins, LITERT, *base_requirements())
        part.rename(folder)
    _run(*pip, "--target", folder, "--upgrade", "--no-deps", *wheels.glob("*.whl"))


def emulated(folder: Path) -> list[str]:
    """Return the command that runs Python for aarch64."""
    emulator = folder / "host" / "usr" / "bin" / "qemu-aarch64"
    return [str(emulator), "-L", str(folder / "root"), str(folder / "root" / "usr" / "bin" / f"python{PYTHON}")]


def table(host: Mapping[str, Sequence[float]], arm: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield a line for each thing that was done."""
    yield f"{'':24}{'here':>8}{'aarch64':>10}  answers differ by  allowed"
    for name, (seconds, differs) in arm.items():
        yield f"{name:24}{host[name][0]:6.2f} s{seconds:8.2f} s  {differs:17.2g}  {allowed(name):g}"


def losses(text: str) -> dict[str, tuple[float, float]]:
    """Return by how much losses differ, and what is allowed, for each library, from what ``bundle check`` prints."""
    rows = json.loads(text.splitlines()[-1])["checks"]
    own = {name: row for row in rows if (name := row["name"]).startswith("losses")}
    names = {name: name.partition(".")[2] or "ONNX Runtime" for name in own}
    return {names[name]: (row["difference"], row["tolerance"]) for name, row in own.items()}


def main(folder: Path) -> int:
    """Fetch, export, run, and print a table; return 1 where an answer differs."""
    fetch(*EMULATOR, folder / "host")
    fetch(*LIBRARIES, folder / "root")
    fetch(*arm_head.COMPILER, folder / "compiler")
    site = folder / f"site-{pinned()}"
    install(site)
    made = folder / "made"
    print("exporting bundles of digits here", flush=True)
    _run(sys.executable, "-m", "tools.portable", made, "--make")
    environment = {"PYTHONPATH": str(site), "PYTHONPYCACHEPREFIX": str(folder / "pyc"), "LC_ALL": "C.UTF-8"}
    command = emulated(folder)
    version = _run(str(folder / "host/usr/bin/qemu-aarch64"), "--version", quiet=True).split()[2]
    machine, python, numpy, runtime = _run(*command, "-c", VERSIONS, quiet=True, environment=environment).split()[-4:]
    print(f"{machine} under QEMU {version}: Python {python}, numpy {numpy}, onnxruntime {runtime}", flush=True)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # emulated threads that spin would take each other's time
    program = (ROOT / "tools" / "portable.py", made, "--json")
    host = json.loads(_run(sys.executable, *program, quiet=True))
    arm = json.loads(_run(*command, *program, quiet=True, environment=environment).splitlines()[-1])
    print(*table(host, arm), sep="\n")
    shutil.rmtree(folder / "steps", ignore_errors=True)
    check = ("-m", "tuner", "bundle", "check", kept_steps.write(folder / "steps"), "--json")
    steps = losses(_run(*command, *check, quiet=True, environment=environment))
    print(
        *(f"20 steps, {name:15} losses differ by {own:.2g}, allowed {most:g}" for name, (own, most) in steps.items()),
        sep="\n",
    )
    heads = arm_head.differences(*arm_head.command(folder / "host/usr/bin/qemu-aarch64", folder / "compiler"))
    print(
        *(f"head in C, {name:12} differs by {own:.2g}, allowed {arm_head.MOST:g}" for name, own in heads.items()),
        sep="\n",
    )
    holds = [differs <= allowed(name) for name, (_, differs) in arm.items()]
    holds += [own <= arm_head.MOST for own in heads.values()]
    return int(not all([*holds, "LiteRT" in steps]))  # a check that does not hold has ended this already


def _read(path: str) -> bytes:
    with urllib.request.urlopen(f"{MIRROR}/{path}", timeout=60) as answer:  # noqa: S310 - https, see MIRROR
        content: bytes = answer.read()
    return content


def _run(*command: str | Path, quiet: bool = False, environment: Mapping[str, str] | None = None) -> str:
    """Run a command that must succeed; return what it prints if it is quiet."""
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE if quiet else None,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:4]))} ... ended with exit code {done.returncode}: see above")
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
