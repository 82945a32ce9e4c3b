"""Reading `.pt2` and `.pt` files without running code that they carry.

`torch.export.load` unpickles parts of an archive, loads compiled libraries from it, and evaluates
symbolic expressions as Python. An archive is therefore read record by record first, and refused
when one of these could do anything but yield tensors.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

TWO_SAFE_WAYS = (
    "save it in one of the two safe ways: model.save_pretrained(directory), or torch.export.save("
    "torch.export.export(model, args, strict=False), 'model.pt2')"
)
EXPORT_AGAIN = "export it again with this torch version: torch.export.save(program, 'model.pt2')"
ARCHIVE_RECORDS = re.compile(
    r"(models/model\.json|data/(weights|constants)/[\w.]+|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|byteorder|version|\.data/\w+|extra/.*)"
)
# Sympy's text form of sizes; no attribute access, no string but a symbol's name.
EXPRESSION = re.compile(
    r"(?:\b(?:Symbol|Integer|Add|Mul|Pow|Mod|FloorDiv|Max|Min|True|False"
    r"|positive|nonnegative|integer|[su]\d+|\d+)\b|'[su]\d+'|[-+*/()=, ])+"
)
TARGET = re.compile(r"torch\.ops\.(aten|prims|higher_order)\.[\w.]+|_operator\.\w+|math\.\w+")


def load_exported_program(path: Path) -> ExportedProgram:
    """A program that `torch.export.save` wrote.

    Raises:
        AtlasError: the file is not such an archive, is damaged, or carries executable content.
    """
    import torch

    try:
        _check_archive(path)
        return torch.export.load(path)
    except AtlasError:
        raise
    except Exception as error:
        raise AtlasError(
            f"{path.name} is not an archive of torch.export, or is damaged",
            where=str(path),
            why=first_line(error),
            remedy=EXPORT_AGAIN,
        ) from error


def load_pt(path: Path, *, trust_pickle: bool = False) -> Any:
    """Content of a `.pt` file: a dictionary of tensors, or a module if the pickle is trusted.

    Raises:
        AtlasError: the file would run code, is damaged, or holds something else.
    """
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=not trust_pickle)
    except Exception as error:
        names = () if trust_pickle else _pickled_names(path)
        if not names:
            raise AtlasError(
                f"{path.name} cannot be read as a torch file",
                where=str(path),
                why=first_line(error),
                remedy=TWO_SAFE_WAYS,
            ) from error
        raise AtlasError(
            f"{path.name} is a pickled object, not a file of weights",
            where=str(path),
            why="to load it would run code from the file; it asks for " + ", ".join(names[:3]),
            remedy=TWO_SAFE_WAYS + "; or give --trust-pickle if you made the file yourself",
        ) from error
    if isinstance(content, torch.nn.Module):
        return content
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    tensors = isinstance(content, dict) and content
    if not tensors or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise AtlasError(
            f"{path.name} holds neither a module nor a dictionary of tensors",
            where=str(path),
            why=f"it holds a {type(content).__name__}",
            remedy=TWO_SAFE_WAYS,
        )
    return content


def _check_archive(path: Path) -> None:
    """Refuse whatever `torch.export.load` would unpickle, link or evaluate."""
    # The same reader as torch.export.load, so that both see the same records.
    from torch.export.pt2_archive._package import PT2ArchiveReader

    with PT2ArchiveReader(str(path)) as reader:
        names = reader.get_file_names()
        for name in names:
            if not ARCHIVE_RECORDS.fullmatch(name):
                raise _refused(path, f"record {name} is not part of an exported program")
        if "models/model.json" not in names:
            raise AtlasError(
                f"{path.name} holds no exported program", where=str(path), remedy=EXPORT_AGAIN
            )
        for name in sorted(_pickled_records(reader, names)):
            if re.match(r"data/constants/(?!tensor_)", name) and not name.endswith(".pt"):
                raise _refused(path, f"record {name} is a pickled object")
            _check_tensors_only(path, name, reader.read_bytes(name))
        for text in _walk(json.loads(reader.read_bytes("models/model.json")), "expr_str"):
            if not EXPRESSION.fullmatch(text):
                raise _refused(path, f"the symbolic size {text!r} is not plain arithmetic")
        for text in _walk(json.loads(reader.read_bytes("models/model.json")), "target"):
            if not TARGET.fullmatch(text):
                raise _refused(path, f"it calls {text}, which is not an op of torch")


def _pickled_records(reader: Any, names: list[str]) -> set[str]:
    """Records that hold a pickle, found as `torch.export.load` finds them."""
    pickled = {name for name in names if name.endswith(".pt")}
    for folder, kind in (("data/weights", "weights"), ("data/constants", "constants")):
        config = f"{folder}/model_{kind}_config.json"
        if config not in names:
            continue
        for payload in json.loads(reader.read_bytes(config))["config"].values():
            file_name = str(payload["path_name"])
            raw = file_name.startswith(("weight_", "tensor_")) and not payload["use_pickle"]
            if not raw:
                pickled.add(f"{folder}/{file_name}")
    return pickled


def _check_tensors_only(path: Path, name: str, content: bytes) -> None:
    import torch

    if not content:
        return
    try:
        torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:
        raise _refused(path, f"record {name}: {first_line(error)}") from error


def _refused(path: Path, why: str) -> AtlasError:
    return AtlasError(
        f"{path.name} carries more than tensors and a graph, and is refused",
        where=str(path),
        why=f"{why}; to load it could run code from the file",
        remedy="export the model with tensor arguments only, and give the archive of "
        "torch.export.save",
    )


def _walk(tree: Any, key: str) -> Iterator[str]:
    """Every string that stands under a key, anywhere in a JSON tree."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == key and isinstance(value, str):
                yield value
            yield from _walk(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from _walk(value, key)


def _pickled_names(path: Path) -> tuple[str, ...]:
    """Classes and functions that a pickle asks for, read from its opcodes without running it."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inner = [name for name in archive.namelist() if name.endswith("/data.pkl")]
                content = archive.read(inner[0])
        else:
            content = path.read_bytes()
        opcodes = [(code.name, argument) for code, argument, _ in pickletools.genops(content)]
    except Exception:  # not a pickle at all
        return ()
    strings: list[str] = []
    names: list[str] = []
    for code, argument in opcodes:
        if code == "GLOBAL":
            names.append(str(argument).replace(" ", "."))
        elif code == "STACK_GLOBAL":
            names.append(".".join(strings[-2:]))
        elif isinstance(argument, str):
            strings.append(argument)
    harmless = ("torch._utils.", "torch.FloatStorage", "collections.OrderedDict")
    return tuple(dict.fromkeys(name for name in names if not name.startswith(harmless)))


def first_line(error: Exception) -> str:
    """The first line of an error's message, for a `why`."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
