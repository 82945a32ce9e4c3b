"""What a program costs, as JSON values: the whole, by layer, and by module of the model."""

from __future__ import annotations

from typing import Any

from atlasc.client.sharing import safe_digits
from atlasc.ir.module import Module, Op
from atlasc.passes.analyses.noise_gains import program_change
from atlasc.passes.approximation.depth import Depth
from atlasc.passes.costs.counts import ProgramCosts, merged
from atlasc.passes.costs.op_costs import PrimitiveCosts
from atlasc.passes.execution.counting_engine import Counts
from atlasc.passes.execution.rotation_plan import RotationPlan
from atlasc.targets.costs.fitted import FittedCosts
from atlasc.targets.desilo.parameters import DesiloParameters, choose_parameters
from atlasc.targets.parameter_sets import ParameterSet, costs_of, primitive_costs_of

_NAMES = {
    "ckks.linear_transform": "linear",
    "ckks.ct_matmul_qk": "attention scores",
    "ckks.row_scores": "attention scores",
    "ckks.ct_matmul_pv": "attention values",
    "ckks.row_context": "attention values",
}


def kind_of(op: Op) -> str:
    """``bootstrap``, the nonlinear function that an op is a part of (``softmax``, ``gelu``, …),
    ``linear``, ``attention scores``, ``attention values``, or ``other``.
    """
    if op.name == "ckks.bootstrap":
        return "bootstrap"
    part = op.attributes.get("part")
    return str(part) if part else _NAMES.get(op.name, "other")


def costs_summary(
    costs: ProgramCosts, parameters: ParameterSet | None, depth: Depth | None = None
) -> dict[str, Any]:
    """Costs of a program.

    ``depth`` and ``levels`` count the Transformer blocks, as the paper does; what lies outside them
    (a final norm, a pooler, the head of a masked language model) is in ``depth_outside`` and
    ``levels_outside``. All other figures are of the whole program. A model without blocks counts as
    one. What is not known is None. ``bootstrap_error`` is what the errors of bootstraps do to the
    outputs, as a root mean square in units of theirs (docs/precision.md), ``safe_digits`` how many
    of an answer may be passed on (:mod:`atlasc.client.sharing`).

    Args:
        costs: read off the program.
        parameters: what it runs with; None where no parameter set has its slots and levels.
        depth: of the nn module that it was lowered from.
    """
    total = costs.total
    known = None if parameters is None else costs_of(parameters)
    primitive_costs = None if known is None or parameters is None else known.costs(parameters)
    layers = costs.per_layer()
    deep = {} if depth is None else dict(depth_per_layer(depth))
    rows = [
        _layer(layer, layers.get(layer, Counts()), costs, primitive_costs, parameters)
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
        **_counts(total, primitive_costs, parameters, costs),
        **_rotations(costs),
        "memory": None if parameters is None else memory_parts(total, parameters, costs),
        "security_bits": None if parameters is None else parameters.security_bits,
        "moduli": None if parameters is None else _moduli(parameters),
        "slots": None if parameters is None else parameters.slots,
        "bootstrap_error": (
            None
            if parameters is None
            else program_change(costs.module, *parameters.bootstrap_errors)
        ),
        "safe_digits": safe_digits(costs.module),
        "machine": None if known is None else str(known.table.machine),
        "key_seconds": None if known is None else _key_seconds(known, parameters, costs),
        "per_kind": _kinds(costs, primitive_costs, parameters),
        "per_layer": rows,
    }


def _moduli(parameters: ParameterSet) -> dict[str, Any]:
    """What a set was chosen for; sizes at the highest level of a program."""
    top = parameters.max_level
    return {
        "ring_degree": parameters.ring_degree,
        "log_qp": parameters.log_qp,
        "special_primes": parameters.special_primes,
        "digits": parameters.dnum,
        "key_bytes": parameters.key_bytes(top),
        "ciphertext_bytes": parameters.ciphertext_bytes(top),
    }


def _key_seconds(
    known: FittedCosts[Any], parameters: ParameterSet | None, costs: ProgramCosts
) -> float:
    """Predicted time to make the evaluation keys of a program."""
    assert parameters is not None
    products = [level for name, level in costs.total.primitives if name in ("mul", "square")]
    return known.key_seconds(parameters, costs.rotation_keys(), max(products, default=None))


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
    primitive_costs: PrimitiveCosts | None,
    parameters: ParameterSet | None,
) -> dict[str, Any]:
    levels, levels_total = costs.levels_per_layer.get(layer, (0, 0))
    return {
        "layer": layer,
        "levels": levels,
        "levels_total": levels_total,
        **_counts(counts, primitive_costs, parameters, costs),
        "security_bits": None if parameters is None else parameters.security_bits,
        "kinds": _seconds_by_kind(costs, primitive_costs, layer),
    }


def _seconds_by_kind(
    costs: ProgramCosts, primitive_costs: PrimitiveCosts | None, layer: int | None
) -> dict[str, float] | None:
    """Seconds of a layer by kind of op, the longest first."""
    if primitive_costs is None:
        return None
    seconds: dict[str, float] = {}
    for op, counts in costs.per_op.items():
        if op.layer == layer:
            seconds[kind_of(op)] = seconds.get(kind_of(op), 0.0) + counts.seconds(primitive_costs)
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _kinds(
    costs: ProgramCosts, primitive_costs: PrimitiveCosts | None, parameters: ParameterSet | None
) -> list[dict[str, Any]]:
    """A row for each kind of op, the longest first: number of ops, share of the time, counts."""
    groups: dict[str, list[Op]] = {}
    for op in costs.per_op:
        groups.setdefault(kind_of(op), []).append(op)
    rows: list[dict[str, Any]] = [
        {"kind": kind, "ops": len(ops)}
        | _counts(merged(costs.per_op[op] for op in ops), primitive_costs, parameters, costs)
        for kind, ops in groups.items()
    ]
    total = sum(row["seconds"] or 0.0 for row in rows)
    for row in rows:
        row["share"] = row["seconds"] / total if total else None
    return sorted(rows, key=lambda row: -(row["seconds"] or 0.0))


def _counts(
    counts: Counts,
    primitive_costs: PrimitiveCosts | None,
    parameters: ParameterSet | None,
    costs: ProgramCosts,
) -> dict[str, Any]:
    parts = None if parameters is None else memory_parts(counts, parameters, costs)
    return {
        "bootstraps": counts.bootstraps,
        "key_switches": counts.key_switches,
        "plaintext_products": counts.plaintext_products,
        "ciphertext_products": counts.ciphertext_products,
        "rotation_keys": len(costs.rotation_keys(counts)),
        "seconds": None if primitive_costs is None else counts.seconds(primitive_costs),
        "memory_bytes": None if parts is None else sum(parts.values()),
    }


def memory_parts(counts: Counts, parameters: ParameterSet, costs: ProgramCosts) -> dict[str, int]:
    """Peak memory in bytes by what it is for: the keys of some ops, and all else of the program."""
    products = [level for name, level in counts.primitives if name in ("mul", "square")]
    conjugation = counts.conjugation_level
    return parameters.memory_parts(
        costs.rotation_keys(counts),
        max(products, default=None),
        None if conjugation < 0 else conjugation,
        costs.live,
        costs.constants,
    )


def _rotations(costs: ProgramCosts) -> dict[str, int]:
    """How the amounts without a key are turned."""
    plan = RotationPlan.of(costs.module) or RotationPlan({})
    return {
        "composed_rotations": len(plan.composed),
        "bootstrap_rotations": len(plan.bootstrap),
    }


def module_costs(costs: ProgramCosts, parameters: ParameterSet | None) -> list[dict[str, Any]]:
    """A row for each module of the model, in order of execution: location, ops and counts."""
    primitive_costs = None if parameters is None else primitive_costs_of(parameters)
    groups: dict[str, list[Counts]] = {}
    names: dict[str, dict[str, None]] = {}
    for op, counts in costs.per_op.items():
        groups.setdefault(op.location, []).append(counts)
        part = op.attributes.get("part") or op.name.removeprefix("ckks.")
        names.setdefault(op.location, {})[part] = None
    return [
        {"location": location, "parts": list(names[location])}
        | _counts(merged(parts), primitive_costs, parameters, costs)
        for location, parts in groups.items()
    ]


def parameters_of_program(program: Module) -> DesiloParameters | None:
    """A parameter set with a ckks module's slots and levels; None where there is none."""
    slots, levels = program.attributes["slots"], program.attributes.get("levels")
    if levels is None:
        return None
    return parameters_with(slots, levels, program.attributes.get("bootstrap", False))


def parameters_with(slots: int, levels: int, bootstrap: bool) -> DesiloParameters | None:
    """A parameter set with so many slots and levels; None where there is none."""
    from atlasc.targets.desilo.parameters import BOOTSTRAPPED, LEVELED

    if bootstrap:
        known = BOOTSTRAPPED.slots == slots and BOOTSTRAPPED.bootstrap_level == levels
        return BOOTSTRAPPED if known else None
    if not any(p.slots == slots and p.max_level >= levels for p in LEVELED):
        return None
    return choose_parameters(levels, slots=slots)
