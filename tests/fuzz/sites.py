"""Every place that reads from outside: found in the code, and followed while readers run.

An opening is a call of something that opens or parses a file or a message, an endpoint of a
service, or a schema that JSON is read into. The fuzzers know which openings their valid samples go
through, so no list says which reader covers what. One that no reader goes through must be in
``NOT_FUZZED``, with a reason.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, get_args

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ir", "passes", "atlasc", "plugins")
OPENING = {
    "TensorFile", "ZipFile", "body", "form", "from_buffer", "from_file", "from_pretrained",
    "from_str", "fromfile", "fromstring", "genfromtxt", "getresponse", "json", "loads", "loadtxt",
    "memmap",
    "model_validate", "open_plain", "parse_json", "pread", "raw_decode", "read", "read_bytes",
    "read_json", "read_npz", "read_safetensors", "read_table", "read_text", "readinto", "readline",
    "readlines", "recv", "recv_into", "safe_load", "safe_open", "stream", "unpack_archive",
    "unpack_from", "validate_json", "validate_python", "validate_strings",
}  # fmt: skip
"""Names of functions and methods that open or parse what is given."""
FOREIGN = {
    "ast": "literal_eval", "base64": "b64decode decodebytes urlsafe_b64decode",
    "bz2": "open decompress", "configparser": "ConfigParser", "csv": "reader DictReader",
    "gzip": "open decompress GzipFile", "json": "load JSONDecoder", "lzma": "open decompress",
    "marshal": "load", "mmap": "mmap", "numpy": "load", "pickle": "load Unpickler",
    "plistlib": "load", "shelve": "open", "sqlite3": "connect", "tarfile": "open TarFile",
    "tomllib": "load", "torch": "load", "urllib.request": "urlopen", "xml.etree.ElementTree":
    "parse iterparse", "yaml": "load", "zlib": "decompress decompressobj",
}  # fmt: skip
"""Module -> its functions that do, and have names which say less, however they are imported."""
VERBS = {"get", "post", "put", "delete", "patch", "head", "options", "websocket", "api_route"}
"""Decorators of endpoints; the standard library's are methods whose names begin with ``do_``."""

_OWN = "another part of atlasc wrote it, in this process or in one that it started"
HERE = "this machine's system has it, or this installation"
_BYTES = "takes bytes as they are, and looks at none of them"
_SECRET = "a file with a secret, which only its owner may write"
_APART = "runs in a process of its own, to which bundled-tokenizer gives files"
_GATE = "the gate, which request goes through, answers before it"
NOT_FUZZED = {
    "ir/text/parser.py:_lark": HERE,
    "ir/text/reference.py:render": HERE,
    "passes/registry.py:<module>": HERE,
    "atlasc/api/interrupted.py:_moved": _BYTES,
    "atlasc/bundle/signing.py:sign": _SECRET,
    "atlasc/emit/project.py:write_project": _OWN,
    "atlasc/calibration/calibrate.py:calibration_of": "calibration reads the same schema",
    "atlasc/compilation/fronts.py:keeping": _BYTES,
    "atlasc/cli/streams.py:open_closed": HERE,
    "atlasc/cli/commands/generate.py:_asked readline": "a user's own turn, which is any text",
    "atlasc/cli/commands/generate.py:_lines read_text": "a user's own turns, which are any text",
    "atlasc/compilation/single_stages.py:read_ir read": "a text that stage reads from a file",
    "atlasc/demo/local.py:_Handler.do_GET": "compares an address with those of its pages",
    "atlasc/demo/local.py:_Handler.do_POST": "service-json reads what it takes, Asked",
    "atlasc/loading/mask_argument.py:read_masks read": "turns an array that was read",
    "atlasc/loading/model_files/parts.py:_arrays": "stored-ir and pt read such files",
    "atlasc/loading/texts/tokenizer.py:copied": _OWN,
    "atlasc/loading/tokenizer_process.py:main": _APART,
    "atlasc/loading/tokenizer_process.py:_bound": HERE,
    "atlasc/ray_cluster.py:_greet": "compares one byte of nine with a constant",
    "atlasc/remote/keys.py:upload_keys": _BYTES,
    "atlasc/report/drawing.py:draw_program": _OWN,
    "atlasc/service/edge/door.py:Held.recv": _BYTES,
    "atlasc/service/edge/door.py:Held.recv_into": _BYTES,
    "atlasc/service/jobs.py:Jobs.answer loads": _OWN,
    "atlasc/service/records/audit.py:Audit.named open": _OWN,
    "atlasc/service/records/audit.py:Audit.news open": _OWN,
    "atlasc/service/records/audit.py:Audit.news read": _OWN,
    "atlasc/service/records/audit.py:_facts loads": _OWN,
    "atlasc/service/v2.py:live": _GATE,
    "atlasc/service/v2.py:ready": _GATE,
    "atlasc/service/workers/actor.py:part_of": _BYTES,
    "atlasc/service/workers/actor.py:RayActor.run.place_of": _BYTES,
    "atlasc/service/workers/local.py:_listen": _OWN,
    "atlasc/service/workers/process.py:main": _OWN,
    "atlasc/service/workers/process.py:mapped": _BYTES,
    "atlasc/service/workers/process.py:_listen": _OWN,
    "atlasc/targets/key_folders.py:read_key": "keys are read in C++, which has fuzzers of its own",
    "atlasc/targets/key_folders.py:require_digest": _BYTES,
    "atlasc/targets/ckks/parameters.py:_stored": HERE,
    "atlasc/targets/machine.py:OtherWork._now": HERE,
    "atlasc/targets/machine.py:_read": HERE,
    "atlasc/targets/security.py:archive": HERE,
}
"""Place -> why no fuzzer reads it."""


@cache
def openings() -> dict[str, tuple[str, int, int]]:
    """Opening -> its file, its first line and its last one.

    An opening is called ``path:function what``. What is no call has 0 for a line: a function that
    is passed on, or an endpoint. A schema is ``schema MODULE.NAME``, wherever it is read into.
    """
    found: dict[str, tuple[str, int, int]] = {}
    trees = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.parents)
    }
    schemas = _schemas(trees.values())
    for path, tree in trees.items():
        for function, what, first, last in File(path, tree, schemas).openings(tree):
            name, number = f"{path}:{function} {what}" if function else what, 1
            while name in found and function:
                number += 1
                name = f"{path}:{function} {what} {number}"
            found[name] = path, first, last
    return found


def _schemas(trees: Any) -> set[str]:
    """Names of the classes that are schemas, by their bases."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {"BaseModel", "TypedDict"}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found & bases.keys()


class File:
    """The openings of a file of Python."""

    def __init__(self, path: str, tree: ast.AST, schemas: set[str]) -> None:
        self._schemas, self._names = schemas, dict[str, str]()
        module = path.removeprefix("plugins/").removesuffix(".py").replace("/", ".")
        self._module = module if path.startswith(("atlasc/", "plugins/")) else f"atlasc.{module}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._names |= {one.asname or one.name: one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                of = f"{node.module}." if node.module and not node.level else ""
                self._names |= {one.asname or one.name: f"{of}{one.name}" for one in node.names}

    def openings(
        self, tree: ast.AST, inside: tuple[str, ...] = ()
    ) -> Iterator[tuple[str, str, int, int]]:
        """Function, what is opened, and lines."""
        place = ".".join(inside) or "<module>"
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.ClassDef):
                yield from self.openings(node, (*inside, node.name))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if _answers(node):
                    yield ".".join((*inside, node.name)), "endpoint", 0, 0
                yield from self.openings(node, (*inside, node.name))
            else:
                if isinstance(node, ast.Call):
                    if name := self._opens(node.func, node):
                        yield place, name, node.lineno, node.end_lineno or node.lineno
                    for one in _given(node):
                        if name := self._opens(one):
                            yield place, f"{name} passed on", 0, 0
                        for schema in self._read_into(one):
                            yield "", f"schema {schema}", 0, 0
                yield from self.openings(node, inside)

    def _opens(self, function: ast.AST, call: ast.Call | None = None) -> str:
        """The name of an expression that opens something; passed on if there is no call."""
        if isinstance(function, ast.Name):
            whole = self._names.get(function.id, "")
        elif isinstance(function, ast.Attribute):
            owner, _, rest = ast.unparse(function.value).partition(".")
            owner = owner if owner.isidentifier() else "?"  # a call, such as Path(...)
            whole = ".".join(filter(None, (self._names.get(owner, ""), rest, function.attr)))
            if self._is_ours(owner, rest, function.attr):
                return ""  # a method that is a place itself
            if call is not None:
                whole = whole if owner in self._names else f"?.{function.attr}"
            elif owner not in self._names:
                return ""
        else:
            return ""
        module, _, name = (whole or ast.unparse(function)).rpartition(".")
        if name in ("open", "fdopen") and name not in FOREIGN.get(module, "").split():
            known = (
                call is not None and whole not in ("os.open", "webbrowser.open") and _reads(call)
            )
            return name if known else ""
        known = name in OPENING and (bool(whole) or (call is not None and name != "read"))
        return name if known or name in FOREIGN.get(module, "").split() else ""

    def _is_ours(self, owner: str, rest: str, name: str) -> bool:
        """Whether a method is one of a class of atlasc."""
        known = self._names.get(owner, "")
        own = owner[:1].isupper() and not owner.isupper()
        own = own and (not known or known.startswith("atlasc"))
        return not rest and (own or (owner == "self" and name in ("read", "stream")))

    def _read_into(self, given: ast.AST) -> Iterator[str]:
        """Schemas that an argument of a call names: ``Known`` or ``tuple[Known, ...]``."""
        if isinstance(given, ast.Subscript):
            parts = given.slice.elts if isinstance(given.slice, ast.Tuple) else [given.slice]
            for part in parts:
                yield from self._read_into(part)
        elif isinstance(given, ast.Name) and given.id in self._schemas:
            yield self._names.get(given.id, f"{self._module}.{given.id}")


def _given(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call; none where they are types for others to read."""
    if isinstance(call.func, ast.Name) and call.func.id in ("cast", "field"):
        return []
    return [*call.args, *(word.value for word in call.keywords)]


def _answers(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is an endpoint."""
    calls = [one.func for one in function.decorator_list if isinstance(one, ast.Call)]
    verbs = {one.attr for one in calls if isinstance(one, ast.Attribute)}
    return bool(verbs & VERBS) or function.name.startswith("do_")


def _reads(call: ast.Call) -> bool:
    """Whether a call of ``open`` may read: it does where no mode is given."""
    given = [*call.args, *(word.value for word in call.keywords)]
    named = isinstance(call.func, ast.Name) or "fdopen" in ast.unparse(call.func)
    texts = [
        one.value
        for argument in given[1 if named else 0 :]
        for one in ast.walk(argument)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    modes = [text for text in texts if re.fullmatch("[rwxabt+]{1,4}", text)]
    return not modes or any(set(mode) & set("r+") for mode in modes)


def unread(names: Iterable[str], through: set[str]) -> list[str]:
    """Openings that no reader goes through, and that are not excused."""
    excused = {name for name in names if name.partition(" ")[0] in NOT_FUZZED or name in NOT_FUZZED}
    return sorted({*names} - through - excused)


@cache
def _lines_of_openings() -> dict[str, set[int]]:
    """File -> the lines at which it opens something."""
    found: dict[str, set[int]] = defaultdict(set)
    for path, first, last in openings().values():
        found[path].update(range(first, last + 1) if first else ())
    return found


@contextmanager
def followed() -> Iterator[set[str]]:
    """What the block goes through, in any thread: openings, and all functions as places."""
    lines: set[tuple[str, int]] = set()
    unseen: dict[CodeType, set[int]] = {}  # lines of openings, of each function that ran
    read: set[str] = set()
    found: set[str] = set()
    ours: dict[str, str] = {}

    def follow(frame: FrameType, event: str, argument: object) -> Any:
        file, code = frame.f_code.co_filename, frame.f_code
        if file not in ours:
            name = os.path.relpath(os.path.realpath(file), ROOT)
            ours[file] = name if name.partition("/")[0] in FOLDERS else ""
        if not ours[file]:
            return None
        if event == "call":
            if code not in unseen:
                own = {line for _, _, line in code.co_lines() if line}
                unseen[code] = own & _lines_of_openings()[ours[file]]
            if code.co_name == "parse_json":
                read.update(_named(frame.f_locals["schema"]))
        lines.add((ours[file], frame.f_lineno))
        unseen[code].discard(frame.f_lineno)
        return follow if unseen[code] else None  # to follow each line takes most of the time

    before = sys.gettrace()
    sys.settrace(follow)
    threading.settrace(follow)
    try:
        yield found
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
        for code in tuple(unseen):  # threads of libraries may still run
            function = getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
            found.add(f"{ours[code.co_filename]}:{function}")
        for name, (path, first, last) in openings().items():
            if name.startswith("schema "):
                through = name.partition(" ")[2] in read
            elif first:
                through = any((path, line) in lines for line in range(first, last + 1))
            else:
                through = name.partition(" ")[0] in found
            if through:
                found.add(name)


def _named(schema: Any) -> set[str]:
    """The names of a schema and of those inside it."""
    name = f"{getattr(schema, '__module__', '')}.{getattr(schema, '__name__', '')}"
    return {name}.union(*map(_named, get_args(schema)))
