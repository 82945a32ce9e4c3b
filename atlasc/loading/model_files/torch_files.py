"""Reading `.pt` files and `.pt2` archives without running code that they carry.

`torch.export.load` unpickles parts of an archive, loads compiled libraries from it, evaluates
symbolic sizes and guards as Python, imports classes that it names, and writes the names of nodes
into Python source that it executes. An archive is therefore checked first, record by record, and
into Python source that it executes. An archive is therefore checked first, record by record. It is
refused unless it holds only tensors and a graph in which every string is known to be harmless.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TypeGuard

from pydantic import BaseModel, Field

from atlasc.ir.errors import AtlasError, explained, first_line
from atlasc.ir.files import MAX_WEIGHTS, MIB, leaves, open_plain, parse_json
from atlasc.loading.loaded_model import Shape

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

ZIP = b"PK\x03\x04"
TWO_SAFE_WAYS = (
    "save the model in one of two safe ways: model.save_pretrained(directory), or "
    "torch.export.save(torch.export.export(model, args, strict=False), 'model.pt2')"
)
EXPORT_AGAIN = (
    "export the model again with this torch version: torch.export.save(program, 'model.pt2')"
)
MAX_RECORDS = 1 << 17
MAX_GRAPH = 512 * MIB
"""Greatest number of bytes of the JSON that describes a graph."""
GRAPH, SAMPLE = "models/model.json", "data/sample_inputs/model.pt"
FOLDERS = {"data/weights": "weights", "data/constants": "constants"}
RECORD = re.compile(
    r"models/model\.json|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt"
    r"|archive_format|archive_version|byteorder|version|\.data/\w+|extra/.*",
    re.ASCII | re.DOTALL,
)
NAME = re.compile(r"[\w.-]{0,1000}", re.ASCII)
"""Form of a name: text of this form is harmless when torch writes it into Python source."""
PLAIN = re.compile(r"[\w.,>() +-]{0,1000}", re.ASCII)
"""Form of string arguments such as "none" and "bij,bjk->bik", and of versions."""
# Form of sizes as sympy writes them: no attribute access, and no strings but names of symbols.
# `has_small_powers` checks powers.
EXPRESSION = re.compile(
    r"(?=.{1,2000}$)(?:\b(?:Symbol|Integer|Add|Mul|Mod|FloorDiv|Max|Min|Pow|True|False"
    r"|positive|nonnegative|integer|[su]\d{1,4}|\d{1,12})\b|'[su]\d{1,4}'"
    r"|(?<!\*)\*(?!\*)|[-+/()=, ])+"
)
SMALL_EXPONENTS = {f"Integer({number})" for number in (2, 3, 4)}
SYMBOL = re.compile(r"[su]\d{1,4}")
# Nothing in this list calls its arguments, sets attributes, or opens files.
TARGET = re.compile(
    r"torch\.ops\.aten\.(?!from_file\b|save\b)[\w.]+|torch\.ops\.prims\.[\w.]+"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
    r"|_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_"
    r"|lshift|rshift|getitem)|math\.(trunc|ceil|floor|sqrt)",
    re.ASCII,
)
SHOWN = (
    "guards_code", "stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node",
    "custom",
)  # fmt: skip
"""Members whose text is only displayed, or never used."""
STRINGS = {
    "expr_str": EXPRESSION,
    "target": TARGET,
    "as_string": PLAIN,
    "as_strings": PLAIN,
    "torch_version": PLAIN,
    **dict.fromkeys(SHOWN, re.compile(r".*", re.DOTALL)),
}
"""Member -> form of its strings; strings of all other members must be names."""
SPECS = ("in_spec", "out_spec")
OBJECTS = ("as_operator", "as_custom_obj", "class_fqn")
"""Members that name functions and classes."""
STRUCTURE = re.compile(
    r"builtins\.(tuple|list|dict)|collections\.OrderedDict|transformers\.[\w.]+", re.ASCII
)
_Extent = dict[Literal["as_int"], Annotated[int, Field(ge=0, lt=1 << 40)]]


def load_pt(path: Path, *, trust_pickle: bool = False) -> Any:
    """The content of a `.pt` file: a dictionary of tensors, or a module if the pickle is trusted.

    Raises AtlasError if the file would run code, is damaged, or holds something else.
    """
    import torch

    with (
        open_plain(path, MAX_WEIGHTS) as file,
        warnings.catch_warnings(),
        explained(f"{path.name} cannot be read as a torch file", path, TWO_SAFE_WAYS),
    ):
        warnings.simplefilter("ignore")  # odd content is refused or harmless
        check_records(file)
        try:
            content = torch.load(file, map_location="cpu", weights_only=not trust_pickle)
        except Exception as error:
            if trust_pickle or not (names := _pickled_names(file)):
                raise
            raise AtlasError(
                f"{path.name} is a pickled object, not a file of weights",
                where=str(path),
                why="loading it would run code from the file, which calls " + ", ".join(names[:3]),
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
            why=f"the file holds a {type(content).__name__}",
            remedy=TWO_SAFE_WAYS,
        )
    return content


def check_records(file: BinaryIO) -> None:
    """Raise ValueError if the records of a zip are compressed or overlap.

    The file is then positioned at its beginning.
    """
    import torch

    start = file.read(4)
    file.seek(0)
    if start != ZIP:
        return  # an older format, read from front to back
    reader = torch._C.PyTorchFileReader(file)
    names = reader.get_all_records()
    held, size = sum(map(reader.get_record_size, names)), file.seek(0, io.SEEK_END)
    file.seek(0)
    if held > size or len(set(names)) < len(names):
        raise ValueError("its records are compressed or overlap; torch stores records uncompressed")


def _pickled_names(file: BinaryIO) -> list[str]:
    """The classes and functions that a pickle asks for, read from its opcodes."""
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


class _Layout(BaseModel):
    sizes: Annotated[list[_Extent], Field(max_length=16)]
    strides: Annotated[list[_Extent], Field(max_length=16)]
    storage_offset: _Extent


class _Payload(BaseModel):
    path_name: Annotated[str, Field(pattern="^(weight|tensor)_[0-9]{1,9}$")]
    use_pickle: Literal[False]
    tensor_meta: _Layout


class _Refusal(Exception):
    """Why an archive is refused: it holds more than tensors and a graph."""


class _UnknownSize(_Refusal):
    """A size of a tensor in a form that atlasc does not read."""


def load_exported_program(
    path: Path,
) -> tuple[ExportedProgram, torch.nn.Module, dict[str, Shape | None]]:
    """A program that `torch.export.save` wrote, its module, and the shapes of its inputs.

    Raises AtlasError if the file is no such archive, is damaged, or carries executable content.
    """
    from torch.export.pt2_archive._package import load_pt2

    with open_plain(path, MAX_WEIGHTS) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        what = f"{path.name} is not an archive of torch.export, or is damaged"
        with explained(what, path, EXPORT_AGAIN):
            try:
                _check_archive(file)
            except _UnknownSize as refusal:
                raise AtlasError(
                    f"{path.name} has a dynamic size that is not understood, and is refused",
                    where=str(path),
                    why=str(refusal),
                    remedy="export the model again with fixed sizes: leave out dynamic_shapes, or "
                    "the dimension that this size is computed from",
                ) from refusal.__cause__
            except _Refusal as refusal:
                raise AtlasError(
                    f"{path.name} carries more than tensors and a graph, and is refused",
                    where=str(path),
                    why=f"{refusal}; loading the archive could run code from it",
                    remedy="export the model with tensor arguments only, and give the archive of "
                    "torch.export.save",
                ) from refusal.__cause__
            file.seek(0)
            # Not torch.export.load, which tries another format if this one fails.
            program = load_pt2(file).exported_programs["model"]
            program.example_inputs = None  # otherwise guards would be compiled as Python
            nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
            shapes: dict[str, Shape | None] = {
                name: tuple(
                    n if isinstance(n, int) else None
                    for n in getattr(nodes[name].meta["val"], "shape", ())
                )
                for name in program.graph_signature.user_inputs
                if isinstance(name, str)  # constants have no name
            }
            return program, program.module(), shapes


def _check_archive(file: BinaryIO) -> None:
    """Refuse content that `load_pt2` would unpickle, link, import, evaluate or expand."""
    import torch

    # The same reader as torch's, so that both see the same records.
    from torch.export.pt2_archive._package import PT2ArchiveReader

    check_records(file)
    with PT2ArchiveReader(file) as reader:
        names = reader.get_file_names()
        sizes = {name: reader.archive_file.get_record_size(name) for name in names}
        for name in names:
            if not RECORD.fullmatch(name):
                raise _Refusal(f"record {name} is not part of an exported program")
        if GRAPH not in sizes:
            raise ValueError("it holds no exported program")
        if sizes[GRAPH] > MAX_GRAPH or len(names) > MAX_RECORDS:
            raise _Refusal(f"its graph has {sizes[GRAPH]} bytes, in {len(names)} records")
        for folder, kind in FOLDERS.items():
            config = f"{folder}/model_{kind}_config.json"
            if config in sizes:
                _check_tensors(folder, reader.read_bytes(config), sizes)
        if sizes.get(SAMPLE):
            try:
                torch.load(io.BytesIO(reader.read_bytes(SAMPLE)), weights_only=True)
            except Exception as error:
                raise _Refusal(f"record {SAMPLE}: {first_line(error)}") from error
        _check_graph(json.loads(reader.read_bytes(GRAPH)))


def _check_tensors(folder: str, config: bytes, sizes: dict[str, int]) -> None:
    """Refuse pickles, and tensors that are larger than their records."""
    try:
        payloads = parse_json(config, dict[Literal["config"], dict[str, _Payload]])["config"]
    except ValueError as error:
        raise _Refusal(f"{folder} is not described as plain tensors: {error}") from None
    for name, payload in payloads.items():
        layout = payload.tensor_meta
        shape, strides = ([n["as_int"] for n in ns] for ns in (layout.sizes, layout.strides))
        reach, elements = layout.storage_offset["as_int"], 1
        for extent, stride in zip(shape, strides, strict=True):
            reach, elements = reach + (extent - 1) * stride, elements * extent
        held = sizes.get(f"{folder}/{payload.path_name}", 0)
        if elements and max(reach + 1, elements) > held:  # an element has at least one byte
            raise _Refusal(f"tensor {name} of shape {shape} is larger than its record")


def _check_graph(graph: Any) -> None:
    for member, text in leaves(graph):
        if not isinstance(text, str):
            continue
        if member in SPECS:
            _check_structure(json.loads(text))
        elif member == "expr_str" and not (EXPRESSION.fullmatch(text) and has_small_powers(text)):
            raise _UnknownSize(f"{text[:200]!r} is not plain arithmetic of small numbers")
        elif not STRINGS.get(member, NAME).fullmatch(text):
            what = {"target": "an op of a model"}
            raise _Refusal(f"{text[:200]!r} is not {what.get(member, 'a plain name')}")
        elif text in OBJECTS:
            raise _Refusal("its graph uses an object that is no tensor")
    for symbol in graph["range_constraints"]:
        if not SYMBOL.fullmatch(symbol):
            raise _Refusal(f"{symbol!r} is not a symbolic size")


def has_small_powers(text: str) -> bool:
    """Whether powers in a size stay small: exponents are small numbers, and no base has a power."""
    if "Pow" not in text:
        return True
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    powers = [one for one in ast.walk(tree) if _is_power(one)]
    named = sum(isinstance(one, ast.Name) and one.id == "Pow" for one in ast.walk(tree))
    return named == len(powers) and all(
        len(one.args) == 2
        and not one.keywords
        and ast.unparse(one.args[1]) in SMALL_EXPONENTS
        and not any(map(_is_power, ast.walk(one.args[0])))
        for one in powers
    )


def _is_power(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Pow"


def _check_structure(spec: Any) -> None:
    """Refuse nested inputs or outputs that name anything but containers and their keys."""
    _, root = spec
    left = [root]
    while left:
        node = left.pop()
        left += node["children_spec"]
        if node["type"] is None and node["context"] is None:
            continue
        if not STRUCTURE.fullmatch(node["type"]):
            raise _Refusal(f"its inputs or outputs are nested in {node['type']}")
        if node["type"].startswith("transformers."):
            import transformers.modeling_outputs  # noqa: F401  # registers its outputs with torch
        for key in json.loads(node["context"]) or []:
            if not isinstance(key, str) or not NAME.fullmatch(key):
                raise _Refusal(f"its inputs or outputs are nested under {key}")
