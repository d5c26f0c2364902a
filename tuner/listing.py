"""What is installed, and what is kept on this device."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.example import example_model
from tuner.folders import open_store
from tuner.host import Host
from tuner.knobs import Draw, corners
from tuner.strategy import Strategy
from tuner.units import said_bytes

EXAMPLE_BLOCKS = 20


def plugin_list(host: Host | None = None) -> dict[str, Any]:
    """Return every plugin, what it offers, and why a refused one was refused."""
    host = host or Host()
    return {
        "plugins": [asdict(plugin) for plugin in host.plugins],
        "strategies": [
            {"name": one.name, "stage": one.stage.value, "module": type(one).__module__, "knobs": _knobs(one)}
            for one in host.strategies.values()
        ],
        "backends": sorted(host.backends),
        "objectives": [{"name": one.name, "direction": one.direction} for one in host.objectives.values()],
        "tasks": sorted(host.tasks),
    }


def said_plugins(found: Mapping[str, Any]) -> str:
    """Return the list for people."""
    lines = ["plugins:"]
    for one in found["plugins"]:
        state = f"refused: {one['refused']}" if one["refused"] else one["module"]
        lines.append(f"  {one['name']} ({one['origin']}): {state}")
    lines.append(f"strategies and their knobs (for a model of {EXAMPLE_BLOCKS} blocks):")
    for one in found["strategies"]:
        lines.append(f"  {one['name']} writes {one['stage']}")
        lines += [f"    {knob}" for knob in one["knobs"]]
    lines.append(f"backends: {', '.join(found['backends'])}")
    lines.append(f"objectives: {', '.join(one['name'] for one in found['objectives'])}")
    lines.append(f"built-in tasks: {', '.join(found['tasks'])}")
    return "\n".join(lines)


def clear_store(folder: Path | None) -> int:
    """Delete all that the store holds: features, their scales, and which engine computes them; return the bytes."""
    store = open_store(folder)
    freed = store.clear()
    with store.lock:
        for path in (path for name in ("scales", "kinds") for path in (store.folder / name).glob("*")):
            freed += path.stat().st_size
            path.unlink()
    return freed


def store_files(folder: Path | None) -> list[dict[str, Any]]:
    """Return what the store holds, what an eviction takes first at the front."""
    return [
        {
            "file": file.path.name,
            "cut": file.key.cut if file.key else None,
            "bits": file.key.bits if file.key else None,
            "kind": file.key.kind if file.key else None,
            "records": file.records,
            "bytes": file.bytes,
            "seconds_per_record": file.seconds_per_record,
            "last_used": file.last_used,
        }
        for file in open_store(folder).list()
    ]


def said_store(files: Sequence[Mapping[str, Any]]) -> str:
    """Return the list for people."""
    if not files:
        return "the store is empty"
    lines = ["cut                        bits  records       size  last used"]
    for one in files:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["last_used"]))
        lines.append(
            f"{one['cut'] or 'damaged':<26} {one['bits'] or 0:>4}  {one['records']:>7,}  "
            f"{said_bytes(one['bytes']):>9}  {used}"
        )
    lines.append(f"in all {said_bytes(sum(one['bytes'] for one in files))}")
    return "\n".join(lines)


def _knobs(strategy: Strategy[Any]) -> list[str]:
    model = example_model(EXAMPLE_BLOCKS)
    found: dict[str, str] = {}
    try:
        for knobs in corners(lambda source: strategy.sample(Draw(source, strategy.name), model), most=64):
            found.update({name: str(knob) for name, knob in knobs.items()})
    except Exception as error:  # noqa: BLE001 - a plugin's strategy may raise anything; listing goes on
        found["error"] = f"sample raises {type(error).__name__}: {error}"
    return list(found.values())
