"""Ops of a ckks module as calls of the C++ runtime's kernels (``runtime_cuda``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class Layouts:
    """Names of the layouts of a program, numbered as they occur."""

    def __init__(self, module: Module) -> None:
        self.names: dict[str, str] = {}
        for op in module.ops:
            if "layout" in op.attributes and op.name != "ckks.input":
                wanted = str(Layout.parse(op.attributes["layout"]))
                self.names.setdefault(wanted, f"layout_{len(self.names)}")

    def __getitem__(self, layout: str) -> str:
        return self.names[str(Layout.parse(layout))]


class Attributes:
    """Attributes of an op as arguments; remembers which were asked for."""

    def __init__(self, op: Op) -> None:
        self.op, self.asked = op, {attribute.name for attribute in COMMON}

    def __call__(self, name: str) -> Any:
        """The attribute, None where the op does not have it."""
        self.asked.add(name)
        return self.op.attributes.get(name)

    def constant(self, name: str) -> list[str]:
        """A number, numbers, or the name of an array, in pieces between which a line may end."""
        value = self(name)
        if isinstance(value, Symbol):
            return [text.string(value.name)]
        if isinstance(value, list):
            return text.braced("std::vector<double>", map(text.number, value))
        return [text.number(value)]

    def flags(self) -> list[str]:
        """The flags that are set, as one argument; none where none is."""
        found = [name for name in FLAGS if self(name)]
        return [" | ".join(found)] if found else []

    def check(self) -> None:
        """Raise AtlasError for an attribute that no kernel asked for: it would be lost."""
        lost = sorted(set(self.op.attributes) - self.asked)
        if lost:
            raise AtlasError(
                f"{self.op.name}: the C++ runtime has no {', '.join(lost)}", where=self.op.location
            )


Arguments = Callable[[Attributes, Layouts], list[str]]


def _linear(get: Attributes, layouts: Layouts) -> list[str]:
    arrays = [get(name) for name in ("weight", "bias", "cos", "sin")]
    names = [text.string(array.name) if array is not None else '""' for array in arrays]
    while names[-1] == '""':
        names.pop()
    steps, layout = text.integer(get("baby_steps")), layouts[get("layout")]
    return [*text.braced("", names), steps, layout, *get.flags()]


def _mask(get: Attributes, operand: int) -> list[str]:
    """The name of a public mask, where there is one, and flags."""
    flags = get.flags()
    if len(get.op.operands) > operand:
        return [text.string(get.op.operands[operand].op.attributes["name"]), *flags]
    return ['""', *flags] if flags else []


def _scores(get: Attributes, layouts: Layouts) -> list[str]:
    layout = get("layout")
    steps = text.integer(Scores(Layout.parse(layout)).baby)
    return [steps, text.number(get("fill")), layouts[layout], *_mask(get, 2)]


def _context(get: Attributes, layouts: Layouts) -> list[str]:
    steps = text.integer(Scores(layout_of(get.op.operands[0])).baby)
    return [steps, layouts[get("layout")]]


def _mask_zero(get: Attributes, layouts: Layouts) -> list[str]:
    return [text.number(get("value")), *_seen(get, 1)]


def _row_scores(get: Attributes, layouts: Layouts) -> list[str]:
    return [text.number(get("fill")), layouts[get("layout")], *_seen(get, 2)]


def _seen(get: Attributes, operand: int) -> list[str]:
    """The name of a public mask, flags, and the token of a causal query that is not the first."""
    mask, query = _mask(get, operand), get("query")
    return [*mask, text.integer(query)] if query and get("causal") else mask


def _mul_plain(get: Attributes, layouts: Layouts) -> list[str]:
    layout = get("layout")
    return [*get.constant("value"), *([layouts[layout]] if layout else []), *get.flags()]


def _select(get: Attributes, layouts: Layouts) -> list[str]:
    return [text.character(get("axis")), text.integer(get("index"))]


KERNELS: dict[str, tuple[str, Arguments]] = {
    "ckks.add": ("add", lambda get, layouts: []),
    "ckks.sub": ("sub", lambda get, layouts: []),
    "ckks.mul": ("mul", lambda get, layouts: []),
    "ckks.square": ("square", lambda get, layouts: []),
    "ckks.double": ("doubled", lambda get, layouts: [text.integer(get("times"))]),
    "ckks.add_plain": (
        "add_plain",
        lambda get, layouts: [*get.constant("value"), *get.flags()],
    ),
    "ckks.mul_plain": ("mul_plain", _mul_plain),
    "ckks.chebyshev": ("chebyshev", lambda get, layouts: get.constant("coefficients")),
    "ckks.linear_transform": ("linear_transform", _linear),
    "ckks.rotate_sum": (
        "rotate_sum",
        lambda get, layouts: [text.string("".join(get("axes")))],
    ),
    "ckks.select": ("select", _select),
    "ckks.ct_matmul_qk": ("ct_matmul_qk", _scores),
    "ckks.mask_zero": ("mask_zero", _mask_zero),
    "ckks.ct_matmul_pv": ("ct_matmul_pv", _context),
    "ckks.replicate": ("replicate", lambda get, layouts: [layouts[get("layout")]]),
    "ckks.row_scores": ("row_scores", _row_scores),
    "ckks.row_context": ("row_context", lambda get, layouts: []),
    "ckks.gather": ("gather", lambda get, layouts: []),
    "ckks.spread": ("spread", lambda get, layouts: [layouts[get("layout")]]),
    "ckks.drop": ("drop", lambda get, layouts: [text.integer(get("level"))]),
    "ckks.bootstrap": ("bootstrap", lambda get, layouts: [text.integer(get("level"))]),
}
"""Kernel of ``runtime_cuda/include/atlasc/kernels.hpp``, and its arguments behind the operands."""


def operands(values: Sequence[Value], last: set[Value]) -> list[str]:
    """Arguments for values; a last use moves, which frees the ciphertexts with the op."""
    names = [text.variable(value) for value in values]
    return [
        f"std::move({name})" if value in last and names.count(name) == 1 else name
        for name, value in zip(names, values, strict=True)
    ]


def statement(op: Op, layouts: Layouts, last: set[Value]) -> str:
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
    kernel, arguments = KERNELS[op.name]
    encrypted = [value for value in op.operands if isinstance(value.type, CiphertextType)]
    get = Attributes(op)
    given = ["context", *operands(encrypted, last), *arguments(get, layouts)]
    get.check()
    return text.call(f"Packed {text.variable(op.value)} = {kernel}", given)
