"""What a search takes on a model of which only the shapes are known: `large.py --plan`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from atlasc.ir.module import Module, Value
from atlasc.polynomials.parametrisation import PRESETS
from atlasc.search.error_model import groups_of
from atlasc.search.strategies.hybrid import AFTER_PROBES, PROBED_ERRORS
from atlasc.simulation.simulator import largest_tensor, last_uses, segments
from atlasc.simulation.torch_simulator import MEMORY, TENSORS

CORES, CORE_FLOPS, PRODUCT_SHARE = 2, 95e9, 0.8
"""Matrix products at 95 GFLOP/s a core take four fifths of a finite evaluation (docs/search.md)."""
GPU_FLOPS = 50e12
"""Of a GPU; assumed, not measured."""
DISK_BYTES = 1e9
"""Assumed: bytes a second from a disk."""


def show(module: Module, arguments: argparse.Namespace) -> None:
    """Print memory, operations, evaluations and hours.

    Args:
        module: an nn module, which may have no weights.
        arguments: plan (the model's name), inputs, tokens, space, memory (MiB).
    """
    groups = groups_of(module, PRESETS[arguments.space])
    work = Work.of(module, arguments.inputs)
    whole = sum(work.products)
    parameters = sum(array.size for array in module.symbols.values())
    names = {op.attributes["weight"].name for op in module.ops if op.name == "nn.linear"}
    linear = sum(module.symbols[name].size for name in names)
    print(
        f"{arguments.plan} without its head, {arguments.inputs} x {arguments.tokens} tokens\n"
        f"parameters: {parameters / 1e9:.2f}e9, {linear / 1e9:.2f}e9 of them in linear layers\n"
        f"weights: {4 * parameters / 1e9:.1f} GB in float32, {2 * parameters / 1e9:.1f} in 16 "
        "bits\n"
        f"values of one evaluation: {work.peak / 1e9:.2f} GB at most\n"
        f"values before all nonlinear ops: {sum(work.kept) / 1e9:.2f} GB; captured for local "
        f"errors: {captured(module, arguments.inputs) / 1e9:.2f} GB\n"
        f"one evaluation: {whole / 1e12:.2f} TFLOP in products"
    )
    probes, after = len(PROBED_ERRORS) * len(groups), AFTER_PROBES
    print(f"evaluations: {probes + after} = {probes} probes of {len(groups)} groups + {after}")
    firsts = [work.names.index(group.places[0].op.value.name) for group in groups]

    def total(memory: int) -> tuple[float, float]:
        """A probe as a share of an evaluation, and the operations of all evaluations."""
        share = float(np.mean([work.from_kept(first, memory) for first in firsts])) / whole
        return share, (probes * share + after) * whole

    speed = CORES * CORE_FLOPS * PRODUCT_SHARE
    print(f"{CORES} cores: {whole / speed:.1f} s an evaluation")
    for memory in (0, arguments.memory << 20, sum(work.kept)):
        share, operations = total(memory)
        print(
            f"  {memory / 1e9:.2f} GB of values kept: a probe is {share:.2f} of an evaluation, "
            f"{operations / speed / 3600:.2f} h in all"
        )
    reading = 2 * parameters / DISK_BYTES
    print(
        f"  16-bit weights read from a disk of {DISK_BYTES / 1e9:g} GB/s each time: "
        f"{reading:.0f} s more an evaluation, {reading / (whole / speed):.0%}"
    )
    batch = MEMORY // (4 * TENSORS * arguments.inputs * largest_tensor(segments(module)))
    print(
        f"GPU: {whole / GPU_FLOPS:.3f} s an evaluation, {total(0)[1] / GPU_FLOPS / 60:.1f} minutes "
        f"in all; {max(1, batch)} settings at once; an estimate, nothing was measured"
    )


@dataclass(frozen=True)
class Work:
    """What the segments of a module take.

    Attributes:
        names: of the nonlinear op that each segment starts with.
        products: floating-point operations in its matrix products.
        kept: bytes of the float32 values before it, 0 where none are kept.
        peak: bytes of the values that are alive at once, at most.
    """

    names: list[str | None]
    products: list[int]
    kept: list[int]
    peak: int

    @staticmethod
    def of(module: Module, inputs: int) -> Work:
        """Read off the shapes, for so many inputs."""
        parts = segments(module)
        last, products = last_uses(parts), []

        def size(value: Value) -> int:
            return 4 * inputs * int(np.prod(value.tensor.shape[1:]))

        made = {op.result for part in parts for op in part.ops}
        alive = peak = sum(size(value) for value in last if value not in made)
        for part in parts:
            done = 0
            for op in part.ops:
                if op.result is None:
                    continue
                if op.name in ("nn.linear", "nn.matmul"):
                    inner = op.operands[0].tensor.shape[-1]
                    done += 2 * inner * size(op.result) // 4
                alive += size(op.result)
                peak = max(peak, alive)
                alive -= sum(size(v) for v in set(op.operands) if last[v] is op)
            products.append(done)
        kept = [sum(map(size, part.live)) if part.nonlinear else 0 for part in parts]
        return Work([part.nonlinear for part in parts], products, kept, peak)

    def from_kept(self, first: int, memory: int) -> int:
        """Operations of a setting that begins to differ at a segment.

        What is kept is the values of the first segments, as many as memory holds (see `Snapshots`).
        """
        held = np.cumsum(self.kept)
        kept = [i for i in range(first + 1) if self.kept[i] and held[i] <= memory]
        return sum(self.products[max(kept, default=0) :])


def captured(module: Module, inputs: int) -> int:
    """Bytes of the values that the probabilities of softmaxes are multiplied with.

    Rows of arguments come to a few MB for each op beside them.
    """
    softmaxes = {op.value for op in module.ops if op.name == "nn.softmax"}
    types = [op.operands[1].tensor for op in module.ops if op.name == "nn.matmul"
              and op.operands[0] in softmaxes]  # fmt: skip
    return sum(4 * inputs * int(np.prod(type.shape[1:])) for type in types)
