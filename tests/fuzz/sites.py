"""Every place that reads from outside: found in the code, and followed while readers run.

A place is a function that calls something which opens or parses a file or a message. The fuzzers
know which functions their valid samples went through, so no list says which reader covers what. A
place that no reader goes through must be in ``NOT_FUZZED``, with a reason.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ir", "passes", "atlasc", "plugins")
OPENING = {
    "TensorFile", "ZipFile", "from_buffer", "from_file", "from_pretrained", "from_str",
    "fromstring", "getresponse", "loads", "model_validate", "open_plain",
    "parse_json", "read_bytes", "read_json", "read_npz", "read_safetensors", "read_text",
    "readline", "recv", "safe_open", "stream", "validate_json", "validate_python",
}  # fmt: skip
"""Names of functions and methods that open or parse what is given."""
LOADING = {"json", "np", "numpy", "pickle", "torch", "yaml"}
"""Modules whose ``load`` does."""

_OWN = "another part of atlasc wrote it, in this process or in one that it started"
_HERE = "this machine's system has it, or this installation"
_BYTES = "takes bytes as they are, and looks at none of them"
_SECRET = "a file with a secret, which only its owner may write"
_APART = "runs in a process of its own, to which bundled-tokenizer gives files"
NOT_FUZZED = {
    "ir/text/parser.py:_lark": _HERE,
    "ir/text/reference.py:render": _HERE,
    "passes/registry.py:<module>": _HERE,
    "atlasc/bundle/signing.py:sign": _SECRET,
    "atlasc/compilation/fronts.py:keeping": _BYTES,
    "atlasc/demo/local.py:_Handler.do_POST": "service-json reads what it takes, Asked",
    "atlasc/loading/model_files/parts.py:_arrays": "stored-ir and pt read such files",
    "atlasc/loading/texts/tokenizer.py:_copied": _OWN,
    "atlasc/loading/tokenizer_process.py:main": _APART,
    "atlasc/loading/tokenizer_process.py:_bound": _HERE,
    "atlasc/ray_cluster.py:_greet": "compares one byte of nine with a constant",
    "atlasc/remote/keys.py:upload_keys": _BYTES,
    "atlasc/report/drawing.py:draw_program": _OWN,
    "atlasc/service/workers/local.py:_listen": _OWN,
    "atlasc/service/workers/process.py:main": _OWN,
    "atlasc/service/workers/process.py:mapped": _BYTES,
    "atlasc/service/workers/process.py:_listen": _OWN,
    "atlasc/targets/key_folders.py:read_key": "keys are read in C++, which has fuzzers of its own",
    "atlasc/targets/key_folders.py:require_digest": _BYTES,
    "atlasc/targets/machine.py:OtherWork._now": _HERE,
    "atlasc/targets/machine.py:_read": _HERE,
}
"""Place -> why no fuzzer reads it."""


def places() -> dict[str, int]:
    """Place -> its first line that opens something; a place is ``path:function``."""
    found: dict[str, int] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                name = path.relative_to(ROOT)
                for function, line in _openings(ast.parse(path.read_text(encoding="utf-8"))):
                    found.setdefault(f"{name}:{function}", line)
    return found


def _openings(tree: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _openings(node, (*inside, node.name))
            continue
        if isinstance(node, ast.Call) and _opens(node):
            yield ".".join(inside) or "<module>", node.lineno
        yield from _openings(node, inside)


def _opens(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        name, owner = function.id, ""
    elif isinstance(function, ast.Attribute):
        name, value = function.attr, function.value
        owner = value.id if isinstance(value, ast.Name) else ""
    else:
        return False
    if name in ("open", "fdopen"):
        given = [*call.args, *(word.value for word in call.keywords)]
        modes = [one.value for one in given if isinstance(one, ast.Constant)]
        return any(isinstance(mode, str) and "r" in mode and len(mode) < 4 for mode in modes)
    return name in OPENING or (name == "load" and owner in LOADING)


@contextmanager
def followed() -> Iterator[set[str]]:
    """The functions of atlasc that the block runs, in any thread, as places."""
    codes: set[CodeType] = set()
    found: set[str] = set()

    def follow(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(follow)
    threading.setprofile(follow)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        for code in tuple(codes):  # threads of libraries may still run
            name = os.path.relpath(os.path.realpath(code.co_filename), ROOT)
            if name.partition("/")[0] in FOLDERS:
                function = getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
                found.add(f"{name}:{function}")
