"""What a public prefix does to the ranges of a decoder, whose first tokens are attention sinks.

    python -m benchmarks.public_prefix MODEL PREFIX [--texts 12] [--tokens 48] [--blocks 16]

PREFIX is a file with the text. Three lines: texts without a prefix; texts behind it, with the
ranges of all tokens, as `compile` takes them; the ranges of the tokens after it, which alone are
encrypted. Levels are those of the least polynomials that are right to 0.1 % on all of a range. The
texts are passages of Python's documentation, code, and lists (`benchmarks/fidelity/passages.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from atlasc.calibration.measure import Reached
    from atlasc.calibration.ranges import Range
    from atlasc.ir.module import Module, Op
    from atlasc.ir.opdef import Site

TITLES = ("texts", "softmax", "norm", "activation", "levels", "widest 1/sqrt", "greatest argument")
KINDS = {"softmax": ("scores",), "norm": ("variance", "mean square"), "activation": ("argument",)}


def main() -> None:
    """Command line."""
    from atlasc.cli.output import print_table
    from atlasc.compilation.options import CalibrationOptions
    from atlasc.compilation.prepare import prepare
    from atlasc.loading.models import model_of
    from benchmarks.fidelity.passages import KINDS as PASSAGES
    from benchmarks.fidelity.passages import passages

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--begin", default="", help="what texts without a prefix begin with")
    parser.add_argument("--texts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--blocks", type=int, help="only the first blocks")
    given = parser.parse_args()
    loaded = model_of(given.model)
    tokenizer: Any = loaded.tokenizer
    if given.blocks is not None:
        loaded.module.model.layers = loaded.module.model.layers[: given.blocks]
        loaded.module.config.num_hidden_layers = given.blocks
    each = given.texts // len(PASSAGES)
    texts = [text for kind in PASSAGES for text in passages(kind, tokenizer, each, given.tokens)]
    public, rows = given.prefix.read_text(), []
    for title, begin, prefix in (("without a prefix", given.begin, ""), ("behind it", "", public)):
        data, before = [begin + text for text in texts], len(tokenizer(prefix + begin)["input_ids"])
        options = CalibrationOptions(sequence_length=given.tokens + before)
        found = prepare(loaded.module, data, options, tokenizer=tokenizer, public_text=prefix)
        rows.append([title, *figures(found.calibration.ranges)])
        if found.source.prefix is not None:
            first, margin = len(found.source.prefix.ids), found.calibration.margin
            alone = ranges_after(found.module, found.source.measured.arrays, first, margin)
            rows.append([f"behind it, after its {first} tokens", *figures(alone)])
    print_table(TITLES, rows, title=f"{given.model}: levels of polynomials right to 0.1 %")


def figures(ranges: Sequence[Range]) -> list[Any]:
    """Levels by kind of op, and of all; the greatest ratio of the ends of an argument of 1/sqrt in
    a norm, and the greatest magnitude of an argument of an activation, as seen.
    """
    from atlasc.polynomials.range_levels import levels_of_ranges

    of = {kind: [r for r in ranges if r.kind in names] for kind, names in KINDS.items()}
    levels = [levels_of_ranges(some) for some in of.values()]
    ratio = max(r.seen_high / r.seen_low for r in of["norm"])
    argument = max(max(-r.seen_low, r.seen_high) for r in of["activation"])
    return [*levels, sum(levels), f"{ratio:.3g}", f"{argument:.3g}"]


def ranges_after(
    module: Module, arrays: Mapping[str, np.ndarray], first: int, margin: float | None
) -> tuple[Range, ...]:
    """The ranges that the tokens from ``first`` on need, [inputs, ...] each."""
    from atlasc.calibration.measure import Measurement, Reached, nonlinear_ops, reached_by
    from atlasc.calibration.ranges import measured_range
    from atlasc.ir.interpreter import Interpreter

    ops, count = nonlinear_ops(module), len(next(iter(arrays.values())))
    seen: dict[Op, list[dict[str, Reached]]] = {op: [] for op in ops}
    start = 0

    def record(op: Op, site: Site, operands: list[np.ndarray]) -> None:
        if op not in seen:
            return
        x, *masks = operands  # rows of attention [batch, heads, tokens, ...], else [batch, tokens]
        rows = x[:, :, first:] if x.ndim == 4 else x[:, first:]
        of_rows = replace(site, attributes={**site.attributes, "query": first})
        seen[op].append(reached_by(op, of_rows, [rows, *masks], start, count))

    run = Interpreter(module, np.float32, override=record).run
    for start in range(count):
        run({name: array[start : start + 1] for name, array in arrays.items()})
    measured = [
        Measurement(op, **{
            name: Reached(*map(np.concatenate, zip(*(part[name] for part in seen[op]))))
            for name in seen[op][0]
        })
        for op in ops
    ]  # fmt: skip
    return tuple(measured_range(one, margin, 2 * len(ops)) for one in measured)


if __name__ == "__main__":
    main()
