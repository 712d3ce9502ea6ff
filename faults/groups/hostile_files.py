"""X1: hostile files, on every way in which the product loads a file."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import safetensors.torch
import torch

from apoint.store import RunWriter, write_manifest
from faults.group import Place, check, group
from faults.laboratory import TINY, cli, write_recipe
from faults.strangers import SECRET, SPECIAL, check_harmless, little_memory, make_special


class _Touch:
    """Makes the canary when it is unpickled."""

    def __init__(self, canary: Path, by: str) -> None:
        self.canary, self.by = canary, by

    def __reduce__(self) -> Any:
        code = f"open({str(self.canary)!r}, 'w').close()"
        ways: dict[str, Any] = {
            "exec": (exec, (code,)),
            "eval": (eval, (code,)),
            "system": (os.system, (f"touch {self.canary}",)),
            "open": (open, (str(self.canary), "w")),
        }
        return ways[self.by]


def _torch_file(content: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


def _zip(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def _object_array(canary: Path) -> bytes:
    stream = io.BytesIO()
    numpy.save(stream, numpy.array([_Touch(canary, "exec")], dtype=object), allow_pickle=True)
    return stream.getvalue()


def _safetensors(header: Any, content: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def _tar(name: str, link: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        info = tarfile.TarInfo(name)
        if link:
            info.type, info.linkname = tarfile.SYMTYPE, link
        info.size = 0 if link else 4
        archive.addfile(info, io.BytesIO(b"evil"))
    return stream.getvalue()


_HUGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (549755813888,), }"
_TENSOR = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
HOSTILE: dict[str, Callable[[Path], bytes]] = {
    **{f"pickle {by}": lambda canary, by=by: pickle.dumps({"w": _Touch(canary, by)})
       for by in ("exec", "eval", "system", "open")},
    "pickle protocol 0": lambda canary: pickle.dumps(_Touch(canary, "exec"), protocol=0),
    "torch zip": lambda canary: _torch_file({"w": _Touch(canary, "exec")}),
    "torch zip nested": lambda canary: _torch_file({"state_dict": [({"w": _Touch(canary, "eval")},)]}),
    "torch legacy": lambda canary: _torch_file(
        {"w": _Touch(canary, "exec")}, _use_new_zipfile_serialization=False),
    "torch module": lambda canary: _torch_file(torch.nn.Linear(2, 2)),
    "jit archive": lambda canary: _zip(**{"m/version": b"3", "m/code/x.py": b"raise SystemExit", "m/data.pkl":
                                          pickle.dumps(_Touch(canary, "exec")), "m/constants.pkl": b""}),
    "npz of objects": lambda canary: _zip(**{"x.npy": _object_array(canary), "y.npy": _object_array(canary)}),
    "npy of objects": _object_array,
    "npz of 4 TB": lambda canary: _zip(**{"x.npy": _npy(_HUGE), "y.npy": _npy(_HUGE)}),
    "npz bad header": lambda canary: _zip(**{"x.npy": _npy("__import__('os').system('touch canary')")}),
    "zip bomb": lambda canary: _zip(**{"x.npy": b"\0" * 200_000_000}),
    "zip traversal": lambda canary: _zip(**{"../../canary": b"", "/tmp/canary-of-faults": b""}),
    "tar traversal": lambda canary: _tar("../canary"),
    "tar link": lambda canary: _tar("a.png", "/etc/passwd"),
    "safetensors overlap": lambda canary: _safetensors({"a": _TENSOR, "b": _TENSOR}),
    "safetensors beyond the end": lambda canary: _safetensors(
        {"a": {**_TENSOR, "shape": [10**9], "data_offsets": [0, 4 * 10**9]}}),
    "safetensors huge header": lambda canary: struct.pack("<Q", 2**62) + b"{}",
    "safetensors deep header": lambda canary: _safetensors(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "safetensors traversal": lambda canary: _safetensors({"../../canary": _TENSOR}, b"\0" * 16),
    "noise": lambda canary: random.Random(0).randbytes(4000),
    "empty": lambda canary: b"",
}  # fmt: skip
MLP = {"name": "mlp", "width": 4, "depth": 1}
LOADS: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
    "weights state dict": ("w.pth", lambda path: {"weights": {"file": str(path)}}),
    "weights safetensors": ("w.safetensors", lambda path: {"weights": {"file": str(path)}}),
    "npz": ("d.npz", lambda path: {"data": {"name": "npz", "path": str(path)}}),
    "csv": ("d.csv", lambda path: {"data": {"name": "csv", "path": str(path)}}),
    "parquet": ("d.parquet", lambda path: {"data": {"name": "parquet", "path": str(path)}}),
    "text": ("d.txt", lambda path: {"data": {"name": "text", "path": str(path), "context": 8}}),
    "shards": ("d.tar", lambda path: {"data": {"name": "tar-shards", "path": str(path)}}),
    "checkpoint": ("model.safetensors", lambda path: {}),
}


@group(
    "X1",
    f"{len(HOSTILE) + len(SPECIAL)} hostile files (pickles, archives, bombs, links, pipes), loaded in "
    f"{len(LOADS)} ways",
    "no code runs, nothing is read or written elsewhere, no hang, no traceback, bounded memory",
    itertools.product([*HOSTILE, *SPECIAL], LOADS),
    seconds=100,
)
def hostile_file(place: Place, what: str, load: str) -> None:
    outside, inside = place.folder / "outside", place.folder / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret").write_text(SECRET)
    name, settings = LOADS[load]
    path = _checkpoint_file(inside) if load == "checkpoint" else inside / name
    if what in SPECIAL:
        make_special(path, what, outside / "secret")
    else:
        path.write_bytes(HOSTILE[what](outside / "canary"))
    if load == "checkpoint":
        if what in HOSTILE:
            write_manifest(path.parent)  # the stranger has made the manifest fit
        command = [
            "export",
            "state-dict",
            str(inside / "runs" / "a-3f2a1b4c-s0"),
            "--to",
            str(inside / "out.safetensors"),
        ]
    else:
        recipe = {**TINY, "model": MLP, "steps": 1, "epochs": None, **settings(path)}
        command = [
            "train",
            str(write_recipe(inside, {k: v for k, v in recipe.items() if v is not None})),
            "--quiet",
        ]
    left = cli(inside, *command, before=little_memory, seconds=30, terminal=True)
    check_harmless(left, outside)
    check(sorted(each.name for each in outside.iterdir()) == ["secret"], "something was written elsewhere")
    check(not Path("/tmp/canary-of-faults").exists(), "something was written to /tmp")


def _checkpoint_file(folder: Path) -> Path:
    """A run with a checkpoint, whose weights are to be replaced."""
    run = folder / "runs" / "a-3f2a1b4c-s0"
    with RunWriter.create(run, "name: a\n", "name: a\n", {"seed": 0}) as writer:
        writer.status("finished")
    checkpoint = run / "checkpoints" / "step-000000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    (checkpoint / "model.safetensors").write_bytes(safetensors.torch.save({"a": torch.zeros(2)}))
    write_manifest(checkpoint)
    return checkpoint / "model.safetensors"
