"""Exact changes of a model that shrink ranges: the levels and the bits that each is worth.

    python -m benchmarks.ranges minilm|tiny_llama|digits_vit|bert_base [--texts 200]
    python -m benchmarks.ranges FILE_OR_FOLDER --texts 14

First table: levels of polynomials that are right to 0.1 % on all of a range, after padding is
filled, keys are centred, and tokens are scaled, one after the other. Second table, for changes that
the compiler does not make: the width of the log-sums of a softmax with a constant for each head
(fitted on half of the inputs, measured on the others), the bits by which a random rotation shrinks
the greatest magnitude before a norm, and the bits that a factor for each channel is worth before a
linear layer. The given model reads windows of Python's documentation; bert_base has random weights
and reads random tokens.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples" / "minilm")]

if TYPE_CHECKING:
    from atlasc.calibration.ranges import Range
    from atlasc.compilation.source import Source
    from atlasc.ir.module import Module, Op, Value

TOKENS = 64
TEMPERATURE = 4
MOST = 64
"""Greatest number of inputs for the second table."""
Table = list[list[Any]]


def main() -> None:
    """Command line."""
    from atlasc.cli.output import print_table

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--studied", action="store_true", help="only the second table")
    arguments = parser.parse_args()
    module, source = loaded(arguments.model, arguments.texts)
    if not arguments.studied:
        print_table(
            ["change", "softmax", "norm", "activation", "levels", "inputs that leave a range"],
            levels(module, source),
            title=f"{arguments.model}: levels of polynomials that are right to 0.1 %",
        )
    print_table(
        ["what", "module", "as it is", "changed", "bits"], studied(module, source),
        title="changes that the compiler does not make",
    )  # fmt: skip


def loaded(name: str, count: int) -> tuple[Module, Source]:
    """A traced model up to its last nonlinear op, and its data."""
    import texts

    from atlasc.compilation.options import CalibrationOptions
    from atlasc.compilation.prepare import trace_model
    from atlasc.compilation.source import load_source

    examples, tokens = ROOT / "examples", TOKENS
    model: Any = {"minilm": texts.model_directory, "bert_base": random_bert}.get(name, str)(
        *([name] if name not in ("minilm", "bert_base") else [])
    )
    data: Any = texts.windows(count, TOKENS) if name != "bert_base" else random_tokens(count)
    if name in ("tiny_llama", "digits_vit"):
        model = examples / name / "model"
    if name == "digits_vit":
        data, tokens = examples / name / "calibration.npz", None
    options = CalibrationOptions(sequence_length=tokens)
    source = load_source(model, data, options)
    return shortened(trace_model(source.model, 1, source.length, source.inputs)), source


def random_bert() -> Any:
    """BERT-base with random weights."""
    from transformers import AutoConfig, BertModel

    config = AutoConfig.from_pretrained(ROOT / "examples" / "configs" / "bert-base")
    return BertModel(config, add_pooling_layer=False).eval()


def random_tokens(count: int) -> dict[str, np.ndarray]:
    """Texts of 3 to 64 random tokens."""
    rng = np.random.default_rng(0)
    mask = (np.arange(TOKENS) < rng.integers(3, TOKENS + 1, (count, 1))).astype(np.int64)
    ids = rng.integers(1000, 30000, (count, TOKENS)) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def shortened(module: Module) -> Module:
    """The module without what follows its last nonlinear op, such as a vocabulary."""
    from atlasc.calibration.measure import nonlinear_ops
    from atlasc.ir.rewriting import Rewriter

    last, rewriter = nonlinear_ops(module)[-1], Rewriter(module)
    for op in module.ops[: module.ops.index(last) + 1]:
        if op.result is not None:
            rewriter.copy(op)
    rewriter.module.add("nn.output", [rewriter.values[last.value]], {"name": "y"})
    symbols = rewriter.module.arrays_used()
    rewriter.module.symbols = {name: a.astype(np.float32) for name, a in symbols.items()}
    return rewriter.module


def levels(module: Module, source: Source) -> Table:
    """Levels by kind of op after each change."""
    from atlasc.api.progress import progress
    from atlasc.calibration.calibrate import calibrate
    from atlasc.calibration.streams import streams_of
    from atlasc.calibration.tails import effective_margin
    from atlasc.passes.calibration.centre_keys import key_shifts, with_centred_keys
    from atlasc.passes.calibration.fill_padding import padding_to_fill, with_filled_padding
    from atlasc.passes.calibration.scale_tokens import token_factors, with_scaled_tokens
    from atlasc.polynomials.range_levels import levels_of_ranges

    arrays, rows = source.measured.arrays, []
    margin = effective_margin(None, len(source.inputs))

    def scaled(of: Module) -> Module:
        return with_scaled_tokens(of, token_factors(of, streams_of(of, arrays), margin=margin))

    padding = padding_to_fill(module, arrays, margin=margin)
    filled = with_filled_padding(module, padding)
    centred = with_centred_keys(filled, key_shifts(filled, arrays))
    before = with_centred_keys(module, key_shifts(module, arrays))
    changes = {
        "none": module,
        "keys centred": before,
        "keys centred, tokens scaled": scaled(before),
        f"padding filled ({padding or 'as it is'}), keys centred": centred,
        f"padding filled ({padding or 'as it is'}), keys centred, tokens scaled": scaled(centred),
    }
    with progress("calibrating", len(changes)) as step:
        for name, changed in changes.items():
            found = calibrate(changed, arrays, held_back=source.validated.arrays, margin=margin)
            kinds: dict[str, list[Range]] = defaultdict(list)
            for one in found.ranges:
                kinds[{"scores": "softmax", "argument": "activation"}.get(one.kind, "norm")] += [
                    one
                ]
            parts = [levels_of_ranges(kinds[k]) for k in ("softmax", "norm", "activation")]
            rows.append([name, *parts, sum(parts), found.leaving])
            step()
    return rows


def studied(module: Module, source: Source) -> Table:
    """What constants for heads, rotations and factors for channels would change."""
    from atlasc.ir.interpreter import Interpreter

    rows = _Studied(module)
    count = min(len(source.inputs), MOST)
    interpreter = Interpreter(module, np.float32, override=rows.record)
    for row in range(count):
        one = {name: a[row : row + 1] for name, a in source.inputs.arrays.items()}
        rows.start(one.get("attention_mask"), row % 2)
        interpreter.run(one)
    return rows.table()


class _Studied:
    """Extremes over the real tokens of all inputs."""

    def __init__(self, module: Module) -> None:
        self.module, self.half, self.kept = module, 0, np.ones(1, bool)
        self.rotations: dict[int, np.ndarray] = {}
        self.streams: dict[Op, tuple[float, float]] = {}
        self.channels: dict[Op, np.ndarray] = {}
        self.sums: dict[Op, list[list[np.ndarray]]] = defaultdict(lambda: [[], []])

    def start(self, mask: np.ndarray | None, half: int) -> None:
        self.half, self.kept = half, np.ones(1, bool) if mask is None else mask[0].astype(bool)

    def record(self, op: Op, site: Any, operands: list[np.ndarray]) -> None:
        from atlasc.calibration.measure import row_sums
        from atlasc.ir.ops.masks import keep_mask

        if op.result is None or op.value.tensor.side != "server":
            return
        x = operands[0]
        if op.name == "nn.softmax":
            _, _, logs = row_sums(x, keep_mask(site, *operands))
            index = 1 + int(np.log2(TEMPERATURE))
            warm = logs[0, :, :, index] + logs[0, :, :, 0]  # all of T log(K / n), over T
            self.sums[op][self.half].append(self._real(warm, 1))
        elif op.definition.family == "norm" and x.ndim == 3:
            rows = self._real(x[0], 0)
            if op.name == "nn.layer_norm":
                rows = rows - rows.mean(axis=-1, keepdims=True)
            ends = np.abs(rows).max(), np.abs(rows @ self._rotation(x.shape[-1])).max()
            old = self.streams.get(op, (0.0, 0.0))
            self.streams[op] = max(old[0], float(ends[0])), max(old[1], float(ends[1]))
        elif op.name == "nn.linear" and x.ndim == 3 and self._made(op.operands[0]):
            most = np.abs(self._real(x[0], 0)).max(axis=0)
            self.channels[op] = np.maximum(self.channels.get(op, 0.0), most)

    def _real(self, x: np.ndarray, axis: int) -> np.ndarray:
        return x if len(self.kept) != x.shape[axis] else np.compress(self.kept, x, axis)

    def _rotation(self, size: int) -> np.ndarray:
        if size not in self.rotations:
            normal = np.random.default_rng(0).normal(size=(size, size))
            self.rotations[size] = np.linalg.qr(normal)[0].astype(np.float32)
        return self.rotations[size]

    def _made(self, value: Value) -> bool:
        """Whether factors of a value's channels can go into the op that makes it: it is the result
        of attention, of an activation, or of a gate."""
        op = value.op
        while op.name in ("nn.reshape", "nn.transpose"):
            op = op.operands[0].op
        return op.name in ("nn.matmul", "nn.mul") or op.definition.family == "activation"

    def table(self) -> Table:
        rows: Table = []
        for op, halves in self.sums.items():
            first, second = (np.concatenate(part, axis=1) for part in halves)
            middle = (first.max(axis=1) + first.min(axis=1))[:, None] / 2
            rows.append(["head", op.location, np.ptp(second), np.ptp(second - middle), ""])
        for op, (plain, turned) in self.streams.items():
            rows.append(["rotation", op.location, plain, turned, np.log2(plain / turned)])
        for op, most in self.channels.items():
            weight = self.module.symbols[op.attributes["weight"].name].astype(np.float64)
            gains = np.sqrt(np.square(weight).sum(axis=0))
            # The error that equal errors of all channels make, and those in proportion to `most`.
            equal, fitting = (np.linalg.norm(gains * size) for size in (most.max(), most))
            bits = np.log2(equal / fitting)
            rows.append(["channels", op.location, most.max(), float(np.median(most)), bits])
        return [[*row[:2], *(f"{v:.3g}" if v != "" else "" for v in row[2:])] for row in rows]


if __name__ == "__main__":
    main()
