"""``atlasc depth``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli import options
from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.passes.approximation.depth import Depth


def depth(
    model: options.Model,
    recipe: options.Recipe = "is",
    sequence_length: options.SequenceLength = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the depth alone.")] = False,
    as_json: JsonFlag = False,
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Print the multiplicative depth of a model under a recipe.

    As papers count it: the depth of the Transformer blocks. What lies outside them (a final norm, a
    pooler, a head) is listed apart. A config without weights is enough.
    """
    from atlasc.passes.approximation.recipes import recipe as find_recipe

    find_recipe(recipe)
    from atlasc.passes.approximation.assign import apply_recipe
    from atlasc.passes.approximation.depth import depth_of
    from atlasc.report.inspection import bare_module

    module = bare_module(
        model, sequence_length=sequence_length, trust_pickle=trust_pickle, steps=progress
    )
    found = depth_of(apply_recipe(module, recipe))
    total, outside = found.blocks, found.outside
    if not found.per_layer:
        total, outside = outside, 0
    if as_json:
        print_json(
            {
                "depth": total,
                "depth_outside": outside,
                "levels_by_formula": found.levels,
                "recipe": recipe,
                "per_layer": [
                    {"layer": layer, "depth": count} for layer, count in found.per_layer.items()
                ],
                "ops": [
                    {"op": op.op, "location": op.location, "layer": op.layer, "depth": op.depth}
                    for op in found.ops
                ],
            }
        )
    elif quiet:
        print(total)
    else:
        _show(found, recipe, total, outside)


def _show(found: Depth, recipe: str, total: int, outside: int) -> None:
    kinds: dict[tuple[str, int], int] = {}
    for op in found.ops:
        if op.layer is not None:
            kinds[op.op, op.depth] = kinds.get((op.op, op.depth), 0) + 1
    rows = [(op, count, each, count * each) for (op, each), count in kinds.items()]
    if rows:
        print_table(("op", "in blocks", "depth of one", "depth"), rows)
    apart = [(op.op, op.location, op.depth) for op in found.ops if op.layer is None]
    if apart:
        print_table(("outside the blocks", "module", "depth"), apart)
    blocks = f"{len(found.per_layer)} blocks" if found.per_layer else "no blocks"
    more = f", and {outside} outside the blocks" if outside else ""
    print(f"depth {total} under the recipe {recipe} ({blocks}){more}")
