"""What a program costs, as JSON values: the whole, by layer, and by module of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atlasc.backends.desilo_costs import cost_table
from atlasc.backends.desilo_parameters import DesiloParameters, choose_parameters
from atlasc.ir.module import Module
from atlasc.passes.approximation.depth import Depth
from atlasc.passes.lowering.costs import ProgramCosts, merged
from atlasc.passes.lowering.counting_engine import Counts, Primitive

Prices = Mapping[tuple[Primitive, int], float]


def costs_summary(
    costs: ProgramCosts, parameters: DesiloParameters | None, depth: Depth | None = None
) -> dict[str, Any]:
    """Costs of a program.

    ``depth`` and ``levels`` count the Transformer blocks, as the paper does; what lies outside them
    (a final norm, a pooler, the head of a masked language model) is in ``depth_outside`` and
    ``levels_outside``. All other figures are of the whole program. A model without blocks counts as
    one. What is not known is None.

    Args:
        costs: read off the program.
        parameters: what it runs with; None where no parameter set has its slots and levels.
        depth: of the nn module that it was lowered from.
    """
    total = costs.total
    prices = None if parameters is None else cost_table(parameters)
    layers = costs.per_layer()
    deep = {} if depth is None else dict(depth_per_layer(depth))
    rows = [
        _layer(layer, layers.get(layer, Counts()), costs, prices, parameters)
        | {"depth": None if depth is None else deep.get(layer, 0)}
        for layer in sorted(
            layers.keys() | deep.keys(), key=lambda layer: (layer is None, layer or 0)
        )
    ]
    inside = [row for row in rows if row["layer"] is not None] or rows
    blocks = sum(row["levels"] for row in inside)
    paper = None if depth is None else sum(row["depth"] for row in inside)
    return {
        "depth": paper,
        "depth_outside": None if paper is None else sum(deep.values()) - paper,
        "levels": blocks,
        "levels_outside": costs.levels - blocks,
        "levels_total": costs.levels_total,
        **_counts(total, prices, parameters),
        "security_bits": None if parameters is None else parameters.security_bits,
        "slots": None if parameters is None else parameters.slots,
        "per_layer": rows,
    }


def depth_per_layer(depth: Depth) -> dict[int | None, int]:
    """Depth by layer; None is what lies outside the blocks."""
    layers: dict[int | None, int] = {}
    layers.update((layer, levels) for layer, levels in depth.per_layer.items())
    if depth.outside:
        layers[None] = depth.outside
    return layers


def _layer(
    layer: int | None,
    counts: Counts,
    costs: ProgramCosts,
    prices: Prices | None,
    parameters: DesiloParameters | None,
) -> dict[str, Any]:
    levels, levels_total = costs.levels_per_layer.get(layer, (0, 0))
    return {
        "layer": layer,
        "levels": levels,
        "levels_total": levels_total,
        **_counts(counts, prices, parameters),
        "security_bits": None if parameters is None else parameters.security_bits,
    }


def _counts(
    counts: Counts, prices: Prices | None, parameters: DesiloParameters | None
) -> dict[str, Any]:
    rotations = counts.rotation_levels
    products = [level for name, level in counts.primitives if name in ("mul", "square")]
    memory = None
    if parameters is not None:
        memory = parameters.memory_bytes(rotations, max(products, default=None))
    return {
        "bootstraps": counts.bootstraps,
        "key_switches": counts.key_switches,
        "plaintext_products": counts.plaintext_products,
        "ciphertext_products": counts.ciphertext_products,
        "rotation_keys": len(rotations),
        "seconds": None if prices is None else counts.seconds(prices),
        "memory_bytes": memory,
    }


def module_costs(costs: ProgramCosts, parameters: DesiloParameters | None) -> list[dict[str, Any]]:
    """A row for each module of the model, in order of execution: location, ops and counts."""
    prices = None if parameters is None else cost_table(parameters)
    groups: dict[str, list[Counts]] = {}
    names: dict[str, dict[str, None]] = {}
    for op, counts in costs.per_op.items():
        groups.setdefault(op.location, []).append(counts)
        part = op.attributes.get("part") or op.name.removeprefix("ckks.")
        names.setdefault(op.location, {})[part] = None
    return [
        {"location": location, "parts": list(names[location])}
        | _counts(merged(parts), prices, parameters)
        for location, parts in groups.items()
    ]


def parameters_of_program(program: Module) -> DesiloParameters | None:
    """A parameter set with a ckks module's slots and levels; None where there is none."""
    from atlasc.backends.desilo_parameters import BOOTSTRAPPED, LEVELED

    slots, levels = program.attributes["slots"], program.attributes.get("levels")
    if levels is None:
        return None
    if program.attributes.get("bootstrap"):
        known = BOOTSTRAPPED.slots == slots and BOOTSTRAPPED.bootstrap_level == levels
        return BOOTSTRAPPED if known else None
    if not any(p.slots == slots and p.max_level >= levels for p in LEVELED):
        return None
    return choose_parameters(levels, slots=slots)
