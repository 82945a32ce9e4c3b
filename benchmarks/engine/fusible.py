"""How many relinearizations of a program a rotation follows, which one key switch could do with it.

    python -m benchmarks.engine.fusible BUNDLE

A product that is also read without the rotation needs its own relinearization all the same. The
seconds are those of the whole key switches by the cost table in use: more than fusion could save.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from atlasc.bundle.folder import load_bundle
from atlasc.program.counting_engine import counts_of
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters, Function, Instruction
from atlasc.targets.costs import costs_of

PRODUCTS = ("mul", "square", "dot")
LINEAR = ("add", "sub", "negate")
"""What a fused key switch could follow, before it is relinearized."""


def pairs_of(function: Function) -> tuple[int, int, int]:
    """Relinearized products; those that a rotation follows; and of these, those that nothing else
    reads.
    """
    readers: defaultdict[int, list[Instruction]] = defaultdict(list)
    for one in function.code:
        for register in one.operands:
            readers[register].append(one)
    products = [one.results[0] for one in function.code if one.primitive in PRODUCTS]
    rotated = alone = 0
    for product in products:
        front, turns, others = [product], 0, 0
        while front:
            register = front.pop()
            others += register in function.results
            for one in readers[register]:
                if one.primitive in LINEAR:
                    front += one.results
                elif one.primitive.startswith("rotate"):
                    turns += 1
                else:
                    others += 1
        rotated += turns > 0
        alone += turns > 0 and not others
    return len(products), rotated, alone


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine.fusible", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("bundle", type=Path, help="a program that atlasc compile wrote")
    bundle = load_bundle(parser.parse_args().bundle)
    shape, prices = EngineParameters.of(bundle.parameters), costs_of(bundle.parameters)
    products = rotated = alone = 0
    seconds = whole = 0.0
    for function in Functions(bundle.program, shape).named().values():
        found = pairs_of(function)
        counts = counts_of(function)
        spent = sum(
            calls * prices[kind, level]
            for (kind, level), calls in counts.primitives.items()
            if kind in ("mul", "square")
        )
        whole += counts.seconds(prices)
        seconds += spent * found[1] / max(found[0], 1)
        products, rotated, alone = (
            sum(two) for two in zip((products, rotated, alone), found, strict=True)
        )
    print(f"{products} products are relinearized; a rotation follows {rotated}, of which {alone}")
    print(f"are read by nothing else; these {rotated} take {seconds / whole:.1%} of all seconds")


if __name__ == "__main__":
    main()
