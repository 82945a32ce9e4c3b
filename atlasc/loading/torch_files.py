"""Reading `.pt` files without running code that they carry."""

from __future__ import annotations

import io
import pickletools
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files.arrays import MAX_WEIGHTS
from atlasc.ir.files.plain import open_plain

ZIP = b"PK\x03\x04"
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

    with (
        open_plain(path, MAX_WEIGHTS) as file,
        warnings.catch_warnings(),
        explained(f"{path.name} cannot be read as a torch file", path, TWO_SAFE_WAYS),
    ):
        warnings.simplefilter("ignore")  # odd content is refused, or does no harm
        check_records(file)
        try:
            content = torch.load(file, map_location="cpu", weights_only=not trust_pickle)
        except Exception as error:
            if trust_pickle or not (names := _pickled_names(file)):
                raise
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


def _pickled_names(file: BinaryIO) -> list[str]:
    """Classes and functions that a pickle asks for, read from its opcodes without running it."""
    import torch

    names: dict[str, None] = {}
    with suppress(Exception):  # not an archive of torch
        file.seek(0)
        content = torch._C.PyTorchFileReader(file).get_record("data.pkl")
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name == "GLOBAL":
                names[str(argument).replace(" ", ".")] = None
    harmless = ("torch._utils.", "torch.FloatStorage", "collections.OrderedDict")
    return [name for name in names if not name.startswith(harmless)]
