"""Changes of files, drawn by a seed: of bytes, or of what a file of a kind means."""

import json
import random
import sqlite3
import struct
import tomllib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import tomli_w
from onnx import helper, numpy_helper

from tuner.bundle.onnx_check import OPERATORS

NESTED = "[" * 200_000
ODD: tuple[Any, ...] = (
    *(0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 0.0, -0.5, 1e308, 5e-324, float("nan"), float("inf")),
    *("", "x", "\0", "../..", "/dev/zero", "\x1b[2J", "\x1b]0;title\x07", "\u202e", "ü" * 300, "1", "nan", "[/]"),
    *(True, False, [], {}, [[]], [1, "a"], {"a": {}}, [0] * 1000),
)
#: Cells of a database's table may hold text that is no JSON, and blobs.
ODD_CELLS: tuple[Any, ...] = (
    None,
    NESTED,
    "{",
    "nan",
    '{"name": "Evil", "attributes": {}}',
    b"\xff\x00",
    "99999-13-99",
)
#: Sizes of shapes and attributes.
SIZES = (0, 1, 2, 3, 7, 64, 255, 4095, 2**16, 2**31, 2**40, -1, -7)
MOST_ADDED = 30
Change = Callable[[random.Random, bytes], bytes]


def changed(draw: random.Random, content: bytes, name: str) -> bytes:
    """Return a file's content after one change or several."""
    how = CHANGES.get(f".{name.rpartition('.')[2]}")
    if how is not None and (name.endswith(".db") or draw.random() < 0.6):
        with suppress(ValueError, TypeError, AttributeError, LookupError):  # it is not what its name says
            return how(draw, content)
    return _bytes(draw, content)


def _bytes(draw: random.Random, content: bytes) -> bytes:
    result = bytearray(content)
    for _ in range(draw.choice([1, 1, 4, 32])):
        at = draw.randrange(len(result) + 1)
        end = min(len(result), at + draw.choice([1, 2, 8, 200]))
        result[at:end] = draw.choice(
            [bytes([draw.randrange(256)]), b"", result[at:end] * 2, draw.randbytes(end - at), b"\xff" * 8, b"[" * 2000]
        )
    return bytes(result)


def _json(draw: random.Random, content: bytes) -> bytes:
    return json.dumps(_odd(draw, json.loads(content))).encode()


def _toml(draw: random.Random, content: bytes) -> bytes:
    return tomli_w.dumps(_odd(draw, tomllib.loads(content.decode()))).encode()


def _lines(draw: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    lines[at] = _json(draw, lines[at]) + b"\n"
    return b"".join(lines)


def _safetensors(draw: random.Random, content: bytes) -> bytes:
    (size,) = struct.unpack("<Q", content[:8])
    header = _json(draw, content[8 : 8 + size])
    if draw.random() < 0.2:  # the header's own size
        size = draw.choice([0, 1, 2**40, 2**63, len(header) + 1])
        return struct.pack("<Q", size) + header + content[8 + size :]
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _request(draw: random.Random, content: bytes) -> bytes:
    words = content.split(b" ")
    at = draw.randrange(len(words))
    words[at] = draw.choice(
        [b"", b"/../../etc/passwd", b"http://[", b"//x/y", b"/%00", b"/%2e%2e/%2e%2e", b"*", b"a" * 70_000, b"\x1b[2J",
         b"HTTP/9.9", b"HTTP/1.0", b"\r\nHost: x\r\n", b"\xff\xfe", b"-1", b"localhost\r\nHost: other", words[at] * 3]
    )  # fmt: skip
    return b" ".join(words)


def _odd(draw: random.Random, content: Any) -> Any:
    """Put an odd value, or another value of the same file, somewhere into what JSON or TOML holds."""
    places: list[tuple[Any, Any]] = []
    stack = [content]
    while stack:
        one = stack.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        places += [(one, key) for key in keys]
        stack += [one[key] for key in keys]
    for _ in range(draw.choice([1, 1, 1, 3])):
        holder, key = draw.choice(places)
        other, at = draw.choice(places)
        with suppress(KeyError, IndexError):
            how = draw.random()
            if how < 0.15:
                del holder[key]
            elif how < 0.3 and isinstance(holder, dict):
                holder[draw.choice(["x", "", "class", "\x1b[2J", key + "s"])] = draw.choice(ODD)
            elif how < 0.5:
                holder[key] = json.loads(json.dumps(other[at]))
            else:
                holder[key] = draw.choice(ODD)
    return content


def _rows(draw: random.Random, content: bytes) -> bytes:
    """Change cells of a SQLite database's tables."""
    with sqlite3.connect(":memory:") as database:
        database.deserialize(content)
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        filled = [name for name in names if database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]]  # noqa: S608
        for _ in range(draw.choice([1, 1, 2])):
            table = draw.choice(filled)
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            (row,) = draw.choice(database.execute(f"SELECT rowid FROM {table}").fetchall())  # noqa: S608
            column = draw.choice(columns)
            (held,) = database.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()  # noqa: S608
            with suppress(sqlite3.IntegrityError, OverflowError):
                sql = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
                database.execute(sql, (_cell(draw, held), row))
        database.commit()
        return bytes(database.serialize())


def _cell(draw: random.Random, held: Any) -> Any:
    if isinstance(held, str) and draw.random() < 0.6:
        with suppress(ValueError, LookupError):
            return json.dumps(_odd(draw, json.loads(held)))
    odd = draw.choice((*ODD_CELLS, *ODD))
    return json.dumps(odd) if isinstance(odd, list | dict) else odd


def _graph(draw: random.Random, content: bytes) -> bytes:
    """Change an ONNX model: a node, an attribute, a name, a constant, a type; or let values grow."""
    model = onnx.load_from_string(content)
    graph = model.graph
    for _ in range(draw.choice([1, 1, 2, 4])):
        draw.choice([_operator, _wiring, _attribute, _name, _constant, _type, _left_out, _growing])(draw, graph)
    result: bytes = model.SerializeToString()
    return result


def _operator(draw: random.Random, graph: Any) -> None:
    draw.choice(graph.node).op_type = draw.choice(sorted(OPERATORS))


def _wiring(draw: random.Random, graph: Any) -> None:
    values = [name for node in graph.node for name in node.output] + [one.name for one in graph.initializer]
    node = draw.choice([node for node in graph.node if node.input])
    node.input[draw.randrange(len(node.input))] = draw.choice(values)


def _attribute(draw: random.Random, graph: Any) -> None:
    attribute = draw.choice([one for node in graph.node for one in node.attribute])
    if attribute.ints:
        attribute.ints[draw.randrange(len(attribute.ints))] = draw.choice(SIZES)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = draw.choice(SIZES)
    else:
        attribute.f = draw.choice([0.0, 1e38, float("nan"), -1.0])


def _name(draw: random.Random, graph: Any) -> None:
    value = draw.choice(["\x1b[2J", "\x1b]0;t\x07", "\u202e", "", "n" * 70_000, "{}", "%s"])
    node = draw.choice(graph.node)
    if draw.random() < 0.5:
        node.name = value
        return
    held = draw.choice(node.output)
    for one in graph.node:
        for names in (one.input, one.output):
            for at, name in enumerate(names):
                names[at] = value if name == held else name


def _constant(draw: random.Random, graph: Any) -> None:
    tensor = draw.choice(graph.initializer)
    held = numpy_helper.to_array(tensor)
    made = draw.choice([held * np.nan, held[:1], held.reshape(-1), held * 0, held.astype(np.float64), -held, held.T])
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(made), tensor.name))
    if draw.random() < 0.3 and tensor.dims:
        tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(SIZES)


def _type(draw: random.Random, graph: Any) -> None:
    value = draw.choice([*graph.input, *graph.output])
    kind = value.type.tensor_type
    if draw.random() < 0.3 or not kind.shape.dim:
        kind.elem_type = draw.choice([0, 1, 6, 7, 8, 9, 10, 11, 16, 99])
    else:
        draw.choice(kind.shape.dim).dim_value = draw.choice(SIZES)


def _left_out(draw: random.Random, graph: Any) -> None:
    del graph.node[draw.randrange(len(graph.node))]


def _growing(draw: random.Random, graph: Any) -> None:
    """Put a chain between a node and what reads it, each link of which makes its input larger."""
    at = draw.randrange(len(graph.node))
    held, kind = graph.node[at].output[0], draw.choice(sorted(GROWTH))
    made, value = list[Any](), held
    for link in range(draw.choice([1, 4, MOST_ADDED])):
        name, before = f"grown{len(graph.node)}_{link}", value
        made += GROWTH[kind](before, name)
        value = name
    constants = {
        "grown_axis": np.array([-1], np.int64), "grown_pads": np.array([0, 0, 0, 4096], np.int64),
        "grown_kernel": np.ones((1, 1, 64, 64), np.float32), "grown_repeats": np.array([1, 16], np.int64),
    }  # fmt: skip
    names = {one.name for one in graph.initializer}
    graph.initializer.extend(numpy_helper.from_array(one, name) for name, one in constants.items() if name not in names)
    total = f"{value}s"  # as the logits need it, no runtime leaves it out
    made += [
        helper.make_node("ReduceMean", [value], [total], keepdims=0),
        helper.make_node("Add", [held, total], [f"{value}a"]),
    ]
    after = list(graph.node)[at + 1 :]
    for reader in after:
        for place, name in enumerate(reader.input):
            if name == held:
                reader.input[place] = f"{value}a"
    del graph.node[at + 1 :]
    graph.node.extend([*made, *after])


_made = helper.make_node
#: Nodes that make a larger value of another one, of a new name.
GROWTH: dict[str, Callable[[str, str], list[Any]]] = {
    "Concat": lambda one, name: [_made("Concat", [one, one], [name], axis=-1)],
    "Mul": lambda one, name: [
        _made("Unsqueeze", [one, "grown_axis"], [f"{name}u"]),
        _made("Mul", [one, f"{name}u"], [name]),
    ],
    "Einsum": lambda one, name: [_made("Einsum", [one, one], [name], equation="...a,...b->...ab")],
    "MatMul": lambda one, name: [
        _made("Unsqueeze", [one, "grown_axis"], [f"{name}u"]),
        _made("Transpose", [one], [f"{name}t"]),
        _made("MatMul", [f"{name}u", f"{name}t"], [name]),
    ],
    "Pad": lambda one, name: [_made("Flatten", [one], [f"{name}f"]), _made("Pad", [f"{name}f", "grown_pads"], [name])],
    "ConvTranspose": lambda one, name: [_made("ConvTranspose", [one, "grown_kernel"], [name], strides=[64, 64])],
    "Tile": lambda one, name: [_made("Tile", [one, "grown_repeats"], [name])],
}

CHANGES: dict[str, Change] = {
    ".json": _json,
    ".toml": _toml,
    ".jsonl": _lines,
    ".log": _lines,
    ".safetensors": _safetensors,
    ".onnx": _graph,
    ".db": _rows,
    ".request": _request,
}
