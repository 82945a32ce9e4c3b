"""Ops of a ckks module as calls of the C++ runtime's kernels (``runtime_cuda``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atlasc.emit import text
from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import COMMON, Symbol
from atlasc.ir.types import CiphertextType
from atlasc.passes.execution.kernels.context import layout_of
from atlasc.passes.execution.kernels.scores import Scores

FLAGS = ("paired", "copy_padding", "first_row", "zero_padding", "causal")


def layout_names(module: Module) -> dict[str, str]:
    """Layouts of a program -> their names, numbered as they occur."""
    names: dict[str, str] = {}
    for op in module.ops:
        if "layout" in op.attributes and op.name != "ckks.input":
            names.setdefault(str(Layout.parse(op.attributes["layout"])), f"layout_{len(names)}")
    return names


class Attributes:
    """Attributes of an op; remembers which were asked for.

    Args:
        op: the op.
        layouts: of the program.
    """

    def __init__(self, op: Op, layouts: Mapping[str, str]) -> None:
        self.op, self.layouts = op, layouts
        self.asked = {attribute.name for attribute in COMMON}

    def __call__(self, name: str) -> Any:
        """The attribute, None where the op does not have it."""
        self.asked.add(name)
        return self.op.attributes.get(name)

    def check(self) -> None:
        """Raise AtlasError for an attribute that no kernel asked for: it would be lost."""
        lost = sorted(set(self.op.attributes) - self.asked)
        if lost:
            raise AtlasError(
                f"{self.op.name}: the C++ runtime has no {', '.join(lost)}", where=self.op.location
            )


Argument = Callable[[Attributes], list[str]]
"""Arguments of a call that attributes give, in pieces between which a line may end."""


def _literal(write: Callable[[Any], str], name: str) -> Argument:
    return lambda get: [write(get(name))]


def _constant(name: str) -> Argument:
    """A number, numbers, or the name of an array."""

    def pieces(get: Attributes) -> list[str]:
        value = get(name)
        if isinstance(value, Symbol):
            return [text.string(value.name)]
        if isinstance(value, list):
            return text.braced("std::vector<double>", map(text.number, value))
        return [text.number(value)]

    return pieces


def _layout(get: Attributes) -> list[str]:
    layout = get("layout")
    return [get.layouts[str(Layout.parse(layout))]] if layout else []


def _flags(get: Attributes) -> list[str]:
    """The flags that are set, as one argument; none where none is."""
    found = [name for name in FLAGS if get(name)]
    return [" | ".join(found)] if found else []


def _mask(get: Attributes) -> list[str]:
    """The name of a public mask, where there is one, flags, and the token of a causal query that is
    not the first."""
    flags, query = _flags(get), get("query")
    public = [v for v in get.op.operands if not isinstance(v.type, CiphertextType)]
    names = [text.string(value.op.attributes["name"]) for value in public] or ['""'] * len(flags)
    return [*names, *flags, *([text.integer(query)] if query and get("causal") else [])]


def _arrays(get: Attributes) -> list[str]:
    """Names of the arrays of a linear transform; empty ones stand for those before the last."""
    arrays = [get(name) for name in ("weight", "bias", "cos", "sin")]
    names = [text.string(array.name) if array is not None else '""' for array in arrays]
    while names[-1] == '""':
        names.pop()
    return text.braced("", names)


def _steps(scores: Callable[[Op], Value]) -> Argument:
    """Baby steps of a product with scores."""
    return lambda get: [text.integer(Scores(layout_of(scores(get.op))).baby)]


KERNELS: dict[str, tuple[Argument, ...]] = {
    "ckks.add": (),
    "ckks.sub": (),
    "ckks.mul": (),
    "ckks.square": (),
    "ckks.double": (_literal(text.integer, "times"),),
    "ckks.add_plain": (_constant("value"), _flags),
    "ckks.mul_plain": (_constant("value"), _layout, _flags),
    "ckks.chebyshev": (_constant("coefficients"),),
    "ckks.linear_transform": (_arrays, _literal(text.integer, "baby_steps"), _layout, _flags),
    "ckks.rotate_sum": (lambda get: [text.string("".join(get("axes")))],),
    "ckks.select": (_literal(text.character, "axis"), _literal(text.integer, "index")),
    "ckks.ct_matmul_qk": (
        _steps(lambda op: op.value),
        _literal(text.number, "fill"),
        _literal(lambda one: text.number(one or 0.0), "log_keys"),
        _layout,
        _mask,
    ),
    "ckks.mask_zero": (_literal(text.number, "value"), _mask),
    "ckks.ct_matmul_pv": (_steps(lambda op: op.operands[0]), _layout),
    "ckks.replicate": (_layout,),
    "ckks.row_scores": (
        _literal(text.number, "fill"),
        _literal(lambda one: text.number(one or 0.0), "log_keys"),
        _layout,
        _mask,
    ),
    "ckks.row_context": (),
    "ckks.gather": (),
    "ckks.spread": (_layout,),
    "ckks.drop": (_literal(text.integer, "level"),),
    "ckks.bootstrap": (_literal(text.integer, "level"),),
}
"""Arguments of the kernels behind the operands."""


def kernel_of(op: str) -> str:
    """Kernel of ``runtime_cuda/include/atlasc/kernels.hpp``; C++ has taken the name ``double``."""
    name = op.removeprefix("ckks.")
    return "doubled" if name == "double" else name


def operands(values: Sequence[Value], last: set[Value]) -> list[str]:
    """Arguments for values; a last use moves, which frees the ciphertexts with the op."""
    names = [text.variable(value) for value in values]
    return [
        f"std::move({name})" if value in last and names.count(name) == 1 else name
        for name, value in zip(names, values, strict=True)
    ]


def statement(op: Op, layouts: Mapping[str, str], last: set[Value]) -> str:
    """The op as a declaration of its result.

    Args:
        op: one with a kernel.
        layouts: of the program.
        last: operands that nothing uses after the op.

    Raises:
        AtlasError: an op or an attribute that the runtime does not have.
    """
    if op.name not in KERNELS:
        raise AtlasError(f"the C++ runtime has no {op.name}", where=op.location)
    encrypted = [value for value in op.operands if isinstance(value.type, CiphertextType)]
    get = Attributes(op, layouts)
    pieces = [piece for argument in KERNELS[op.name] for piece in argument(get)]
    get.check()
    head = f"Packed {text.variable(op.value)} = {kernel_of(op.name)}"
    return text.call(head, ["context", *operands(encrypted, last), *pieces])
