"""Costs of a program as JSON values: of the whole, by layer, and by module of the model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from atlasc.analyses.observed import program_change
from atlasc.client.sharing import safe_digits
from atlasc.ir.module import Module, Op
from atlasc.program.costs import ProgramCosts, program_costs
from atlasc.program.counting_engine import Counts
from atlasc.program.kinds import kind_of
from atlasc.program.rotation_plan import RotationPlan
from atlasc.runtime.interface import interface_of
from atlasc.targets.ckks.traffic import bytes_moved, traffic_of
from atlasc.targets.costs import fitted_costs
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.security import estimates_of

if TYPE_CHECKING:
    from atlasc.passes.approximation.approximate import Depth


def noise_by_kind(changes: Mapping[Op, float]) -> list[dict[str, Any]]:
    """One row for each kind of op: by how much its errors change an answer, as a share of the
    answer's size (root mean square), the largest first.

    Args:
        changes: the variance that the errors of each op add, in units of the answer's size.
    """
    variances: dict[str, float] = {}
    ops = Counter[str]()
    for op, variance in changes.items():
        own = op.name.removeprefix("ckks.")
        kind = {"input": "encryption", "output": "decryption"}.get(own, kind_of(op))
        variances[kind] = variances.get(kind, 0.0) + variance
        ops[kind] += 1
    return [
        {"kind": kind, "ops": ops[kind], "change": math.sqrt(variance)}
        for kind, variance in sorted(variances.items(), key=lambda item: -item[1])
    ]


def program_facts(program: Module, parameters: ParameterSet, depth: Depth) -> dict[str, Any]:
    """What a manifest says of a program: parameters, security and costs."""
    return {
        "parameters": parameters.to_dict(),
        "security_bits": parameters.security_bits,
        "security": estimates_of(parameters.secrets),
        "insecure": parameters.security_bits < 128,
        "costs": costs_summary(program_costs(program), parameters, depth),
    }


def costs_summary(
    costs: ProgramCosts, parameters: ParameterSet | None, depth: Depth | None = None
) -> dict[str, Any]:
    """Costs of a program.

    ``depth`` and ``levels`` count the Transformer blocks, as the paper does. Everything outside
    them (a final norm, a pooler, the head of a masked language model) is in ``depth_outside`` and
    ``levels_outside``. All other figures cover the whole program. A model without blocks counts as
    one block. Unknown figures are None. ``bootstrap_error`` is the change of the outputs by the
    errors of bootstraps, as a root mean square in units of the outputs (docs/precision.md).
    ``safe_digits`` is the number of digits of an answer that may be passed on
    (:mod:`atlasc.client.sharing`). ``device_bytes`` is what the kernels of a GPU read and write,
    estimated for the target ``cuda`` alone (:mod:`atlasc.targets.ckks.traffic`).

    Args:
        costs: costs counted on the program.
        parameters: parameter set of the program; None if none has its slots and levels.
        depth: depth of the nn module that the program was lowered from.
    """
    summary = _Summary(costs, parameters)
    layers = costs.by(lambda op: op.layer)
    deep: dict[int | None, int] = {}
    if depth is not None:
        deep.update(depth.per_layer.items())
        deep |= {None: depth.outside} if depth.outside else {}
    order = sorted(layers.keys() | deep.keys(), key=lambda layer: (layer is None, layer or 0))
    rows = [
        summary.layer(layer, layers.get(layer, Counts()))
        | {"depth": None if depth is None else deep.get(layer, 0)}
        for layer in order
    ]
    inside = [row for row in rows if row["layer"] is not None] or rows
    blocks = sum(row["levels"] for row in inside)
    paper = None if depth is None else sum(row["depth"] for row in inside)
    plan = RotationPlan.of(costs.module) or RotationPlan({})
    return {
        "depth": paper,
        "depth_outside": None if paper is None else sum(deep.values()) - paper,
        "levels": blocks,
        "levels_outside": costs.path.nonlinear - blocks,
        "levels_total": costs.path.total,
        **summary.counts(costs.total),
        "composed_rotations": len(plan.composed),
        "bootstrap_rotations": len(plan.bootstrap),
        "derived_rotations": len(costs.module.attributes.get("derived_rotations", ())),
        **summary.of_parameters(),
        "safe_digits": _safe_digits(costs.module),
        "per_kind": summary.kinds(),
        "per_layer": rows,
    }


def _safe_digits(module: Module) -> int | None:
    """See :func:`safe_digits`; None where the bounds are still to come."""
    whole = all("noise" in op.attributes for op in module.outputs)
    return safe_digits(interface_of(module)) if whole else None


def module_costs(costs: ProgramCosts, parameters: ParameterSet | None) -> list[dict[str, Any]]:
    """One row for each module of the model, in order of execution: location, ops and counts."""
    summary = _Summary(costs, parameters)
    parts: dict[str, dict[str, None]] = {}
    for op in costs.per_op:
        part = op.attributes.get("part") or op.name.removeprefix("ckks.")
        parts.setdefault(op.location, {})[part] = None
    return [
        {"location": location, "parts": list(parts[location])} | summary.counts(counts)
        for location, counts in costs.by(lambda op: op.location).items()
    ]


def memory_parts(counts: Counts, parameters: ParameterSet, costs: ProgramCosts) -> dict[str, int]:
    """Purpose -> bytes of peak memory: for the keys of some ops, and everything else of a
    program.
    """
    level = counts.conjugation_level
    return parameters.memory_parts(
        costs.rotation_keys(counts), _product_level(counts), None if level < 0 else level,
        costs.live, costs.copied if parameters.device else costs.constants,
    )  # fmt: skip


def _product_level(counts: Counts) -> int | None:
    """The highest level of a product of ciphertexts; None if there is no such product."""
    levels = (level for name, level in counts.primitives if name in ("mul", "square"))
    return max(levels, default=None)


class _Summary:
    """Rows of counts, with seconds and memory if they are known."""

    def __init__(self, costs: ProgramCosts, parameters: ParameterSet | None) -> None:
        self.costs, self.parameters = costs, parameters
        self.table = None if parameters is None else fitted_costs(parameters)
        self.primitive_costs = None if self.table is None else self.table.costs()
        self.traffic = traffic_of(parameters)

    def counts(self, counts: Counts) -> dict[str, Any]:
        seconds = memory = moved = None
        if self.primitive_costs is not None:
            seconds = counts.seconds(self.primitive_costs)
        if self.parameters is not None:
            memory = sum(memory_parts(counts, self.parameters, self.costs).values())
        if self.traffic is not None:
            moved = bytes_moved(counts, self.traffic)
        return {
            "bootstraps": counts.bootstraps,
            "key_switches": counts.key_switches,
            "plaintext_products": counts.plaintext_products,
            "ciphertext_products": counts.ciphertext_products,
            "rotation_keys": len(self.costs.rotation_keys(counts)),
            "seconds": seconds,
            "memory_bytes": memory,
            "device_bytes": None if moved is None else round(moved),
        }

    def layer(self, layer: int | None, counts: Counts) -> dict[str, Any]:
        levels, levels_total = self.costs.path.per_layer.get(layer, (0, 0))
        kinds = None
        if self.primitive_costs is not None:
            kinds = dict[str, float]()
            for op in self.costs.per_op:
                if op.layer == layer:
                    more = self.costs.per_op[op].seconds(self.primitive_costs)
                    kinds[kind_of(op)] = kinds.get(kind_of(op), 0.0) + more
            kinds = dict(sorted(kinds.items(), key=lambda item: -item[1]))
        return {
            "layer": layer,
            "levels": levels,
            "levels_total": levels_total,
            **self.counts(counts),
            "security_bits": None if self.parameters is None else self.parameters.security_bits,
            "kinds": kinds,
        }

    def kinds(self) -> list[dict[str, Any]]:
        """One row for each kind of op, the longest first: number of ops, share of time, counts."""
        ops = Counter(map(kind_of, self.costs.per_op))
        rows: list[dict[str, Any]] = [
            {"kind": kind, "ops": ops[kind]} | self.counts(counts)
            for kind, counts in self.costs.by(kind_of).items()
        ]
        total = sum(row["seconds"] or 0.0 for row in rows)
        for row in rows:
            row["share"] = row["seconds"] / total if total else None
        return sorted(rows, key=lambda row: -(row["seconds"] or 0.0))

    def of_parameters(self) -> dict[str, Any]:
        """Facts that follow from the parameter set; sizes are in bytes at its highest level."""
        names = "memory", "security_bits", "moduli", "slots", "bootstrap_error", "machine"
        found: dict[str, Any] = dict.fromkeys((*names, "key_seconds"))
        parameters, costs = self.parameters, self.costs
        if parameters is None:
            return found
        top = parameters.max_level
        found |= {
            "memory": memory_parts(costs.total, parameters, costs),
            "security_bits": parameters.security_bits,
            "moduli": {
                "ring_degree": parameters.ring_degree,
                "log_qp": parameters.log_qp,
                "special_primes": parameters.special_primes,
                "digits": parameters.dnum,
                "key_bytes": parameters.key_bytes(top),
                "ciphertext_bytes": parameters.ciphertext_bytes(top),
            },
            "slots": parameters.slots,
            "bootstrap_error": program_change(costs.module, *parameters.bootstrap_errors),
        }
        if self.table is not None:
            level, keys = _product_level(costs.total), costs.rotation_keys()
            found["machine"] = str(self.table.table.machine)
            found["key_seconds"] = self.table.key_seconds(keys, level)
        return found
