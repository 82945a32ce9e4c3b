"""The client's part of a traced model: from raw inputs to the tensors that it encrypts."""

from __future__ import annotations

from atlasc.ir.module import Module
from atlasc.passes.framework.rewriting import Rewriter, without_dead_ops


def client_module(module: Module) -> Module:
    """The nn ops on the client's side; every ``nn.encrypt`` becomes an output of the same name.

    Its outputs are the inputs of the poly module that ``expand`` makes from the same module.
    """
    rewriter = Rewriter(module)
    for op in module.ops:
        if op.name == "nn.encrypt":
            rewriter.module.add(
                "nn.output", rewriter.operands(op), {"name": op.value.name}, op.location
            )
        elif op.result is not None and op.result.tensor.side == "client":
            rewriter.copy(op)
    return without_dead_ops(rewriter.module)
