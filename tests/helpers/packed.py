"""Running packed programs in tests: what the client and the server do, on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from atlasc.analyses.observed import with_magnitudes
from atlasc.ir.interpreter import encrypted_input, output
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.assign_scales import AssignScales
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.program.execute import execute
from atlasc.program.kernels.context import ROWS, blocked, layout_of
from atlasc.targets.sim import SimEngine

Arrays = Mapping[str, np.ndarray]


def expanded(module: Module) -> Module:
    """The poly module of an nn module, before folding."""
    return run_passes(module, [Expand()])


def folded(poly: Module, inputs: Arrays) -> Module:
    """The poly module with its factors folded away, guided by the magnitudes on these inputs."""
    poly = run_passes(poly, [NormaliseAffine(), FoldFeatures()])
    return run_passes(with_magnitudes(poly, inputs), [AssignScales()])


def pack_tensor(layout: Layout, tensor: np.ndarray) -> np.ndarray:
    """Slots ``[ciphertexts, slots]`` of a tensor ``[B, n, F]`` or ``[B, F]``."""
    rows = (layout.extent("b"), layout.extent("t"), tensor.shape[-1])
    return layout.pack(blocked(tensor.reshape(rows), layout), repeat=ROWS)


def unpack_tensor(layout: Layout, slots: np.ndarray, features: int) -> np.ndarray:
    """The tensor ``[B, n, F]`` (or ``[B, F]``) in the slots of a hidden layout."""
    tensor = layout.unpack(slots)
    return tensor.reshape(*tensor.shape[:-2], -1)[..., :features]


def run_packed(
    program: Module,
    inputs: Arrays,
    engine: SimEngine,
    observe: Callable[[Op, list[Any]], None] | None = None,
) -> dict[str, np.ndarray]:
    """Encrypt, execute, decrypt; outputs by name in the shapes of the poly module."""
    encrypted = {}
    for op in program.ops:
        if op.name == "ckks.input":
            layout, name = op.attributes["layout"], op.attributes["name"]
            tensor = encrypted_input(op.site({}), np.asarray(inputs[name], dtype=np.float64))
            level = op.attributes.get("level", engine.max_level)
            encrypted[name] = [engine.encrypt(v, level) for v in pack_tensor(layout, tensor)]
    results = execute(engine, program, encrypted, inputs, observe=observe)
    return {
        op.attributes["name"]: _decrypted(op, program, results, engine) for op in program.outputs
    }


def _decrypted(op: Op, program: Module, results: dict, engine: SimEngine) -> np.ndarray:
    slots = np.stack([engine.decrypt(c) for c in results[op.attributes["name"]]])
    shape = op.attributes["shape"]
    tensor = unpack_tensor(layout_of(op.operands[0]), slots, shape[-1]).reshape(shape)
    return output(op.site(program.symbols), tensor)
