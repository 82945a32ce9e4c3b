"""Turns ops of a ckks module into functions, and executes a module on an engine, op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from threading import Lock
from typing import Any, Generic

import numpy as np

from atlasc.ir.errors import AtlasError, blaming
from atlasc.ir.facts import OBSERVED
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.program.counting_engine import CountingEngine
from atlasc.program.engine import Ct, Engine
from atlasc.program.function import EngineParameters, Function
from atlasc.program.kernels import attention, cache, elementwise, linear, rotary, rows
from atlasc.program.kernels.context import Context
from atlasc.program.lanes import in_step
from atlasc.program.plaintexts import MASK
from atlasc.program.record import Register
from atlasc.program.rotation_plan import PLAN_ATTRIBUTES

_NAMED = (
    linear.linear_transform, elementwise.add_plain, elementwise.bootstrap,
    elementwise.chebyshev, elementwise.double, elementwise.drop, elementwise.gather,
    elementwise.mul_plain, elementwise.rotate_sum, elementwise.select, elementwise.spread,
    elementwise.square,
    attention.ct_matmul_pv, attention.ct_matmul_qk, cache.at_tokens, rotary.rotary,
    rows.replicate, rows.row_context, rows.row_scores,
)  # fmt: skip
KERNELS: dict[str, Callable[..., list[Register]]] = {
    **{f"ckks.{kernel.__name__}": kernel for kernel in _NAMED},
    **dict.fromkeys(("ckks.add", "ckks.sub", "ckks.mul"), elementwise.binary),
    **dict.fromkeys(("ckks.mask_fill", "ckks.mask_zero"), attention.fill_masked),
}
"""Op -> kernel. A kernel takes a `Context`, the op, and a list of ciphertexts for each encrypted
operand. It returns the ciphertexts of the result."""


STORES = 8
"""Number of (shape, rotation plan) pairs whose functions are kept: enough for a program from its
first layout on, with and without slots, and for a few other programs."""


class _Store:
    """The functions of ops under one plan of rotations, by everything that they depend on."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.functions: dict[tuple[Any, ...], Function] = {}
        self.costs_only: dict[tuple[Any, ...], Function] = {}


@lru_cache(STORES)
def _store(slots: int, bootstrap_level: int | None, bootstrap_batch: int, plan: str) -> _Store:
    """The store for engines of any highest level, on which kernels never depend."""
    return _Store()


class Functions:
    """The functions of a program. Each is recorded on its first use, and then kept for all users:
    passes, costs, keys, memory, emission, runs.

    Attributes:
        symbols: arrays of the program.
        costs_only: whether the functions are only for counting, and may lack slots.
    """

    def __init__(self, module: Module, shape: EngineParameters, costs_only: bool = False) -> None:
        """The functions of a ckks module, with or without levels, for engines of a shape.

        With ``costs_only`` the module's arrays may be missing.
        """
        self._module, self.symbols, self.costs_only = module, module.symbols, costs_only
        self._context = Context(shape, module, costs_only)
        self._lanes = module.attributes.get("lanes", 1)
        plan = repr(
            [*map(module.attributes.get, ("lanes", "most_sums", "fewer_keys", *PLAN_ATTRIBUTES))]
        )
        self._store = _store(shape.slots, shape.bootstrap_level, shape.bootstrap_batch, plan)

    def of(self, op: Op, levels: Sequence[Sequence[int]]) -> Function:
        """The function of an op; ``levels`` are those of the ciphertexts of each encrypted operand.

        Raises:
            AtlasError: the op cannot be computed at these levels; the error names op and module.
        """
        key, store = (*_key(op, self.symbols), *map(tuple, levels)), self._store
        known = store.costs_only if self.costs_only else store.functions
        with store.lock, _blaming(op):
            if key not in known:
                known[key] = self._record(op, tuple(map(tuple, levels)))
            return known[key]

    def calls(self) -> Iterator[tuple[Op, Function]]:
        """The ops of the module that have kernels, each with its function.

        Inputs without a level count as having the highest level.
        """
        levels: dict[Value, tuple[int, ...]] = {}
        for op in self._module.ops:
            if op.name == "ckks.input":
                level = op.attributes.get("level", self._context.shape.max_level)
                levels[op.value] = (level,) * op.value.ciphertext.ciphertexts
            elif op.result is not None and op.name != "ckks.public_input":
                function = self.of(op, [levels[one] for one in op.operands if one in levels])
                levels[op.value] = function.result_levels
                yield op, function

    def named(self) -> dict[Op, Function]:
        """Op -> its function, as :meth:`calls`; each function has a name that is unique in the
        program.
        """
        names, numbers = dict[Function, Function](), dict[str, int]()
        calls = dict(self.calls())
        for function in calls.values():
            if function not in names:
                number = numbers[function.name] = numbers.get(function.name, 0) + 1
                names[function] = function.named(f"{function.name}_{number}")
        return {op: names[function] for op, function in calls.items()}

    def text(self) -> str:
        """The whole program in primitives: its functions, and the calls of each op."""
        lines, calls = [], self.named()
        for op, function in calls.items():
            operands = [f"%{value.name}" for value in op.operands if value.encrypted]
            arrays = map("{} = {}".format, function.roles, function.arrays(op))
            given = ", ".join([*operands, *arrays])
            place = f"  # {op.location}" if op.location else ""
            lines.append(f"%{op.value.name} = {function.name}({given}){place}")
        functions = (one.text() for one in dict.fromkeys(calls.values()))
        return "\n\n".join([*functions, "\n".join(lines)]) + "\n"

    def _record(self, op: Op, levels: tuple[tuple[int, ...], ...]) -> Function:
        if op.name not in KERNELS:
            raise AtlasError(
                f"{op.name} cannot be run",
                where=op.location,
                why="in the client's view of a program, this op stands for the server's work",
                remedy="give the server's program",
            )
        context = self._context
        context.begin()
        operands = [[context.recorder.register(level) for level in one] for one in levels]
        result = KERNELS[op.name](context, op, *operands)
        return Function(
            op.name.removeprefix("ckks."),
            context.shape,
            levels,
            in_step(context.recorder.code, self._lanes),
            tuple(one.number for one in result),
            tuple(one.level for one in result),
        )


def _key(op: Op, symbols: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Everything that an op's function at given levels depends on: its types and attributes, with
    the shape of a symbol (for coefficients its values) in place of its name.
    """
    parts = [op.name, str(op.value.type), *(str(value.type) for value in op.operands)]
    for name, value in sorted(op.attributes.items()):
        if isinstance(value, Symbol):
            array = symbols[value.name]
            value = array.tobytes() if name == "coefficients" else array.shape
        if name not in OBSERVED:
            parts.append(f"{name}={value!r}")
    return tuple(parts)


def _blaming(op: Op) -> AbstractContextManager[None]:
    """Errors in the block name the op and its module."""
    return blaming(f"{op.name} %{op.value.name}", op.location)


class Executor(Generic[Ct]):
    """Computes ops of a program on an engine, by executing their functions.

    Attributes:
        engine: evaluates the primitives; its shape is that of the functions.
    """

    def __init__(self, engine: Engine[Ct], functions: Functions) -> None:
        self.engine, self._functions = engine, functions

    def apply(self, op: Op, operands: Sequence[Any]) -> list[Ct]:
        """The result of an op that has a kernel.

        Args:
            op: an op of the module.
            operands: the ciphertexts of each operand, or the array of a public operand.

        Raises:
            AtlasError: the engine refused the op; the error names op and module.
        """
        encrypted: list[list[Ct]] = []
        masks: list[np.ndarray] = []
        for value, operand in zip(op.operands, operands, strict=True):
            (encrypted if value.encrypted else masks).append(operand)
        levels = [[self.engine.level(one) for one in operand] for operand in encrypted]
        function = self._functions.of(op, levels)
        arrays: list[np.ndarray] = []
        if not self._functions.costs_only:
            site = op.site(self._functions.symbols)
            arrays = [masks[0] if r == MASK else site.constant(r) for r in function.roles]
        with _blaming(op):
            return self.engine.play(function, encrypted, arrays)


class Execution(Generic[Ct]):
    """A run of a ckks module, op by op. Between two ops, its position and its values are all that
    the rest of the run needs.

    Args:
        engine: evaluates the ops.
        program: ckks module with levels.
        encrypted: input name -> ciphertexts.
        public: name of a public input -> array.

    Attributes:
        position: position of the next op.
        values: what later ops and the outputs read: ciphertexts, or the array of a public input.
    """

    def __init__(
        self,
        engine: Engine[Ct],
        program: Module,
        encrypted: Mapping[str, list[Ct]],
        public: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self._counts = isinstance(engine, CountingEngine)
        functions = Functions(program, EngineParameters.of(engine), costs_only=self._counts)
        self._executor = Executor(engine, functions)
        self._program = program
        self._given = {"ckks.input": encrypted, "ckks.public_input": public or {}}
        self._last_use = {v: n for n, op in enumerate(program.ops) for v in op.operands}
        self._last_use |= {op.operands[0]: len(program.ops) for op in program.outputs}
        self.position, self.values = 0, dict[Value, Any]()

    def step(self) -> None:
        """Compute the next op, and free what no later one reads.

        Raises:
            AtlasError: an input is missing, or the engine refused the op (level, key, memory).
        """
        op = self._program.ops[self.position]
        if op.result is not None:
            # On sim an input outside the ranges overflows; decryption then reports it in one
            # message.
            with np.errstate(over="ignore", invalid="ignore"):
                self.values[op.result] = self._result(op)
        for operand in op.operands:
            if self._last_use[operand] == self.position:
                self.values.pop(operand, None)
        self.position += 1

    def _result(self, op: Op) -> Any:
        if op.name not in self._given:
            return self._executor.apply(op, [self.values[one] for one in op.operands])
        given, name = self._given[op.name], op.attributes["name"]
        if name in given:
            return given[name]
        if self._counts and op.name == "ckks.public_input":
            return None
        raise AtlasError(f"input {name!r} is missing", where=op.location)

    @property
    def outputs(self) -> dict[str, list[Ct]]:
        """Output name -> encrypted output, once all ops are done."""
        return {op.attributes["name"]: self.values[op.operands[0]] for op in self._program.outputs}


def execute(
    engine: Engine[Ct],
    program: Module,
    encrypted: Mapping[str, list[Ct]],
    public: Mapping[str, np.ndarray] | None = None,
    before: Callable[[Op], None] | None = None,
    observe: Callable[[Op, list[Any]], None] | None = None,
) -> dict[str, list[Ct]]:
    """Run a ckks module.

    Args:
        engine, program, encrypted, public: see :class:`Execution`.
        before: called before every op (scopes, timing), such as `atlasc.run.timing.Pace`.
        observe: called after every op with its ciphertexts (progress, comparison, timing).

    Returns:
        Output name -> encrypted output.

    Raises:
        AtlasError: an input is missing, or the engine refused an op (level, key, memory).
    """
    run = Execution(engine, program, encrypted, public)
    for op in program.ops:
        if before is not None:
            before(op)
        run.step()
        if observe is not None and op.result is not None:
            observe(op, run.values[op.result])
    return run.outputs
