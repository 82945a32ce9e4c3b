"""The interpreter: evaluates an nn or poly module in the clear, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from atlasc.ir.arrays.lazy import as_dtype
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site

Override = Callable[[Op, Site, list[np.ndarray]], np.ndarray | None]
Observer = Callable[[Op, np.ndarray], None]


def encrypted_input(site: Site, x: np.ndarray) -> np.ndarray:
    """The tensor that the client encrypts: centred and multiplied, if the input says so."""
    if site.attributes.get("centred", False):
        x = x - x.mean(axis=-1, keepdims=True)
    return x * x.dtype.type(site.attributes["factor"]) if "factor" in site.attributes else x


def output(site: Site, x: np.ndarray) -> np.ndarray:
    """The answer from a decrypted result: x · factor + shift, if the output has these."""
    if "factor" in site.attributes:
        x = x * site.like("factor", x)
    return x + site.like("shift", x) if "shift" in site.attributes else x


class Interpreter:
    """Evaluates a module many times in a float type; arrays of symbols are cast to it once.

    An ``override`` is called before an op is evaluated; an array that it returns is used as the
    result. The polynomial simulator replaces nonlinear functions in this way.
    """

    def __init__(
        self, module: Module, dtype: Any = np.float64, override: Override | None = None
    ) -> None:
        self.module, self.dtype, self.override = module, np.dtype(dtype), override
        self.symbols = {
            name: as_dtype(array, self.dtype) for name, array in module.arrays_used().items()
        }
        self._last_use = {
            operand: position for position, op in enumerate(module.ops) for operand in op.operands
        }

    def run(
        self, inputs: Mapping[str, np.ndarray], *, observe: Observer | None = None
    ) -> dict[str, np.ndarray]:
        """Outputs by name.

        Args:
            inputs: arrays by input name, of the shapes that the module declares; the batch axis may
                have another extent unless a reshape fixes it.
            observe: called with every op and its result.
        """
        values: dict[Value, np.ndarray] = {}
        outputs: dict[str, np.ndarray] = {}
        for position, op in enumerate(self.module.ops):
            site, arrays = op.site(self.symbols), [values[operand] for operand in op.operands]
            if op.result is None:
                outputs[op.attributes["name"]] = output(site, arrays[0])
            else:
                result = None if self.override is None else self.override(op, site, arrays)
                if result is None:
                    evaluate = op.definition.evaluate or partial(self._input, op, inputs)
                    result = evaluate(site, *arrays)
                values[op.result] = result
                if observe is not None:
                    observe(op, result)
            for operand in op.operands:
                if self._last_use[operand] == position:
                    values.pop(operand, None)
        return outputs

    def _input(self, op: Op, inputs: Mapping[str, np.ndarray], site: Site) -> np.ndarray:
        name, wanted = op.attributes["name"], tuple(op.attributes["shape"])
        if name not in inputs:
            raise AtlasError(
                f"input {name!r} is missing",
                where=op.location,
                remedy=f"give an array of shape {wanted}",
            )
        array = np.asarray(inputs[name])
        if array.ndim != len(wanted) or array.shape[1:] != wanted[1:]:
            raise AtlasError(
                f"input {name!r} has shape {array.shape}",
                where=op.location,
                why=f"the program was compiled for {wanted}",
                remedy="pad or cut the data, or compile for this shape",
            )
        if op.attributes["dtype"] == "i64":
            return array.astype(np.int64, copy=False)
        return encrypted_input(site, array.astype(self.dtype, copy=False))


def interpret(
    module: Module,
    inputs: Mapping[str, np.ndarray],
    dtype: Any = np.float64,
    *,
    override: Override | None = None,
    observe: Observer | None = None,
) -> dict[str, np.ndarray]:
    """Evaluate a module once; see ``Interpreter``."""
    return Interpreter(module, dtype, override).run(inputs, observe=observe)


def kept_tokens(
    module: Module, arrays: Mapping[str, np.ndarray], output: np.ndarray
) -> np.ndarray | None:
    """1 for the tokens of an output [B, n, ...] that a mask keeps, 0 for padding, which is not
    compared. None without a mask."""
    for op in module.inputs:
        mask = arrays.get(op.attributes["name"])
        if op.attributes["side"] != "public" or mask is None or output.ndim <= 2:
            continue
        if mask.shape == output.shape[:2]:
            return mask.reshape(*mask.shape, *[1] * (output.ndim - 2)).astype(output.dtype)
    return None
