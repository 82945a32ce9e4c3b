"""Modules: one SSA graph at one IR level, and the arrays that its symbols name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np

from atlasc.ir.bounds import MAX_PATH, Location, is_location, is_symbol, line_of
from atlasc.ir.errors import AtlasError
from atlasc.ir.opdef import OPS, OpDef, RuleError, Site, Symbol, require, symbols_in
from atlasc.ir.ops import (  # noqa: F401  (the registry)
    ckks,
    ckks_attention,
    ckks_linear,
    client,
    nn,
    poly,
    tensors,
)
from atlasc.ir.ops.names import Attributes, OpName
from atlasc.ir.types import CiphertextType, TensorType, Type, is_bounded

IRLevel = Literal["nn", "poly", "ckks"]
LEVELS: tuple[IRLevel, ...] = get_args(IRLevel)
_LAYER = re.compile(r"(?:@|(?:^|\.))(\d{1,9})(?=\.|$)", re.ASCII)


@dataclass(eq=False)
class Value:
    """A result: its name (without %), its type and the op that makes it."""

    name: str
    type: Type
    op: Op

    @property
    def encrypted(self) -> bool:
        """Whether it is a packed ciphertext."""
        return isinstance(self.type, CiphertextType)

    @property
    def tensor(self) -> TensorType:
        """The type of a tensor in the clear; raises AtlasError where the value is a ciphertext."""
        if isinstance(self.type, TensorType):
            return self.type
        raise AtlasError(f"{self} is a ciphertext, not a tensor", where=self.op.location)

    @property
    def ciphertext(self) -> CiphertextType:
        """The type of a packed ciphertext; raises AtlasError where the value is a tensor."""
        if isinstance(self.type, CiphertextType):
            return self.type
        raise AtlasError(f"{self} is a tensor, not a ciphertext", where=self.op.location)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(eq=False)
class Op:
    """One operation; ``location`` is the path of the model's module that it came from. Where a
    model runs a block again, with the same weights, ``@`` and the number of the run follow the
    block's path (``encoder.block.0@3.attention``).
    """

    definition: OpDef
    operands: tuple[Value, ...]
    attributes: Attributes
    location: str = ""
    result: Value | None = None

    @property
    def name(self) -> OpName:
        """Qualified name, such as ``nn.linear``."""
        return cast(OpName, self.definition.name)

    @property
    def layer(self) -> int | None:
        """Index of the Transformer block: the first integer in the location, else None. Of a block
        that runs again it is the number of the run.
        """
        match = _LAYER.search(self.location)
        return int(match[1]) if match else None

    @property
    def block(self) -> str | None:
        """Path of the Transformer block: the location up to its index; None outside of blocks."""
        match = _LAYER.search(self.location)
        return self.location[: match.end()] if match else None

    @property
    def place(self) -> Location:
        """Location and name, ``encoder.0: nn.gelu``, with the line of the user's code."""
        return Location(f"{self.location}: {self.name}", line_of(self.location))

    @property
    def value(self) -> Value:
        """The result of an op that has one."""
        assert self.result is not None, f"{self.name} has no result"
        return self.result

    def chosen(self, *names: str) -> dict[str, Any]:
        """Those of its attributes that have these names."""
        return {name: value for name, value in self.attributes.items() if name in names}

    def levels(self, symbols: Mapping[str, np.ndarray]) -> int:
        """Levels that the op consumes."""
        return self.definition.consumed(self.site(symbols))

    def site(self, symbols: Mapping[str, np.ndarray]) -> Site:
        """The part of the op that the rules of its declaration see."""
        return Site([operand.type for operand in self.operands], self.attributes, symbols)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join('%' + v.name for v in self.operands)})"


@dataclass
class Module:
    """An SSA graph in execution order: operands come before their uses.

    Attributes:
        level: every op belongs to it.
        symbols: arrays by name; they are stored beside the text, never in it.
        attributes: facts about the whole program (slots, parameters).
    """

    name: str
    level: IRLevel
    ops: list[Op] = field(default_factory=list)
    symbols: dict[str, np.ndarray] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set, repr=False)
    _counter: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        require_symbol(self.name)

    def add(
        self,
        op_name: OpName,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Any] | None = None,
        location: str = "",
        name: str | None = None,
    ) -> Value:
        """Append an op and return its result (for ``output``: its operand), of the type that its
        rule gives.

        Raises:
            AtlasError: the op does not exist at this level, breaks its declaration, or its location
                has other characters than a path of modules.
        """
        if not is_location(location):
            raise AtlasError(
                f"{location[:MAX_PATH]!r} cannot be the location of an op",
                why=f"it has odd characters, or more than {MAX_PATH}",
            )
        definition = OPS.get(op_name)
        if definition is None or definition.level != self.level:
            raise AtlasError(
                f"there is no op {op_name} at the {self.level} level",
                where=location,
                remedy=f"ops of this level: {', '.join(ops_of(self.level))}",
            )
        op = Op(definition, tuple(operands), cast(Attributes, dict(attributes or {})), location)
        try:
            result_type = infer_type(op, self.symbols)
        except RuleError as error:
            raise AtlasError(f"{op_name}: {error}", where=location) from None
        return self._append(op, result_type, name)

    def add_again(self, op: Op, operands: Sequence[Value]) -> Value:
        """Append an op of another module on operands of the same types, which give the same type.

        Passes copy most ops. To infer all types again would take most of the time of a lowering.
        """
        attributes = cast(Attributes, dict(op.attributes))
        again = Op(op.definition, tuple(operands), attributes, op.location)
        if op.result is None:
            return self._append(again, None)
        return self._append(again, op.result.type, op.result.name)

    def _append(self, op: Op, result_type: Type | None, name: str | None = None) -> Value:
        self.ops.append(op)
        if result_type is None:
            return op.operands[0]
        op.result = Value(self.fresh_name(name), result_type, op)
        return op.result

    def fresh_name(self, wanted: str | None = None) -> str:
        """A value name that is not taken: the wanted one, followed by a number where needed.

        Characters that the text form does not allow become underscores.
        """
        name = wanted = re.sub(r"\W", "_", wanted or "", flags=re.ASCII)
        if not wanted or wanted in self._names:
            prefix = f"{wanted}_" if wanted else ""
            while (name := f"{prefix}{self._counter}") in self._names:
                self._counter += 1
        self._names.add(name)
        return name

    def constant(self, name: str, array: np.ndarray) -> Symbol:
        """Store an array under a free name that starts with ``name``; return its symbol."""
        require_symbol(name)
        candidate, number = name, 0
        while candidate in self.symbols:
            number += 1
            candidate = f"{name}.{number}"
        self.symbols[candidate] = array
        return Symbol(candidate)

    @property
    def inputs(self) -> list[Op]:
        """The input ops."""
        return [op for op in self.ops if op.name == f"{self.level}.input"]

    @property
    def outputs(self) -> list[Op]:
        """The output ops."""
        return [op for op in self.ops if op.name == f"{self.level}.output"]

    def users(self) -> dict[Value, list[Op]]:
        """The ops that use each value (an op that uses it twice is listed twice)."""
        table: dict[Value, list[Op]] = {op.result: [] for op in self.ops if op.result is not None}
        for op in self.ops:
            for operand in op.operands:
                table[operand].append(op)
        return table

    def depths(self, levels: Callable[[Op], int] | None = None) -> dict[Value, int]:
        """Levels consumed on the longest path to every value, by default those of its ops."""
        levels = levels or (lambda op: op.levels(self.symbols))
        depth: dict[Value, int] = {}
        for op in self.ops:
            if op.result is not None:
                before = max((depth[operand] for operand in op.operands), default=0)
                depth[op.result] = before + levels(op)
        return depth

    def arrays_used(self) -> dict[str, np.ndarray]:
        """The arrays that some op refers to, in the order of the symbol table."""
        used = {symbol.name for op in self.ops for symbol in symbols_in(op.attributes)}
        return {name: array for name, array in self.symbols.items() if name in used}

    def __reduce__(self) -> tuple[Any, ...]:
        # A graph is too deep to be pickled as it is, and declarations hold functions.
        rows = [
            (op.name, [v.name for v in op.operands], op.attributes, op.location,
             op.result.name if op.result else None)
            for op in self.ops
        ]  # fmt: skip
        return _rebuilt, (self.name, self.level, self.arrays_used(), self.attributes, rows)


def _rebuilt(
    name: str, level: IRLevel, symbols: Any, attributes: Any, rows: Sequence[tuple[Any, ...]]
) -> Module:
    """A module from what ``Module.__reduce__`` gives."""
    module = Module(name, level, symbols=symbols, attributes=attributes)
    values: dict[str | None, Value] = {}
    for op_name, operands, op_attributes, location, result in rows:
        sources = [values[operand] for operand in operands]
        values[result] = module.add(op_name, sources, op_attributes, location, result)
    return module


def infer_type(op: Op, symbols: Mapping[str, np.ndarray]) -> Type | None:
    """Check an op against its declaration and infer its result type. A RuleError says what is
    wrong, without the place.
    """
    op.definition.check(len(op.operands), op.attributes)
    for symbol in symbols_in(op.attributes):
        require(symbol.name in symbols, f"the module has no symbol {symbol}")
    try:
        result = op.definition.infer(op.site(symbols))
    except (ArithmeticError, LookupError, ValueError) as error:
        raise RuleError(f"its attributes do not suit its operands ({error})") from None
    if result is not None and not is_bounded(result):
        raise RuleError(f"a value cannot be of type {result}")
    return result


def require_symbol(name: str) -> None:
    """Refuse a name of an array or a module that has control characters or is too long."""
    if not is_symbol(name):
        raise AtlasError(
            f"{name[:MAX_PATH]!r} cannot name an array or a module",
            why=f"it has control characters, or more than {MAX_PATH} characters",
        )


def op_name(text: str) -> OpName:
    """A name that was put together: ``Module.add`` refuses one that no op has."""
    return cast(OpName, text)


def ops_of(level: str) -> list[str]:
    """Names of all ops declared at an IR level."""
    return [name for name in OPS if name.startswith(f"{level}.")]


def family_of(op_name: str) -> str:
    """The family of approximations that an nn op takes; raises AtlasError for any other op."""
    definition = OPS.get(op_name)
    if definition is None or not definition.family:
        raise AtlasError(f"{op_name} takes no approximation")
    return definition.family
