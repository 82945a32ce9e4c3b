"""Reading `.pt` files without running code that they carry."""

from __future__ import annotations

import io
import pickletools
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from atlasc.ir.errors import AtlasError, first_line
from atlasc.ir.files.arrays import MAX_WEIGHTS
from atlasc.ir.files.plain import MIB, open_plain

ZIP = b"PK\x03\x04"
MAX_PICKLE = 16 * MIB
"""Bytes of a pickle that are searched for the names of classes and functions."""
TWO_SAFE_WAYS = (
    "save it in one of the two safe ways: model.save_pretrained(directory), or torch.export.save("
    "torch.export.export(model, args, strict=False), 'model.pt2')"
)


def load_pt(path: Path, *, trust_pickle: bool = False) -> Any:
    """Content of a `.pt` file: a dictionary of tensors, or a module if the pickle is trusted.

    Raises:
        AtlasError: the file would run code, is damaged, or holds something else.
    """
    import torch

    with open_plain(path, MAX_WEIGHTS) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd content is refused, or does no harm
        try:
            check_records(file)
            content = torch.load(file, map_location="cpu", weights_only=not trust_pickle)
        except Exception as error:
            names = () if trust_pickle else _pickled_names(file)
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


def check_records(file: BinaryIO) -> None:
    """Raise ValueError for a zip whose records are compressed or overlap.

    Afterwards the file is at its beginning.
    """
    import torch

    start = file.read(4)
    file.seek(0)
    if start != ZIP:
        return  # a format of older versions, which is read from front to back
    reader = torch._C.PyTorchFileReader(file)
    names = reader.get_all_records()
    held, size = sum(map(reader.get_record_size, names)), file.seek(0, io.SEEK_END)
    file.seek(0)
    if held > size or len(set(names)) < len(names):
        raise ValueError("its records are packed or overlap; torch stores them as they are")


def _pickled_names(file: BinaryIO) -> tuple[str, ...]:
    """Classes and functions that a pickle asks for, read from its opcodes without running it."""
    try:
        file.seek(0)
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                inner = [name for name in archive.namelist() if name.endswith("/data.pkl")]
                with archive.open(inner[0]) as record:
                    content = record.read(MAX_PICKLE)
        else:
            file.seek(0)
            content = file.read(MAX_PICKLE)
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
