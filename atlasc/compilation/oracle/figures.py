"""How far each stage of a program is from the user's own module, on some inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from atlasc.client.program import (
    batches,
    client_program,
    decrypt_all,
    encrypt_all,
    rows_of,
)
from atlasc.compilation.oracle.asking import SPREAD, Apart, Arrays, Asked, apart, greatest_error
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.pipeline import Lowered
from atlasc.program.costs import program_costs
from atlasc.program.execute import execute
from atlasc.simulation.watch import both_answers, knows_model
from atlasc.targets.base import no_progress
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import with_embedding
from atlasc.targets.sim import TARGET as SIM

FEW, MANY = 5_000, 200_000
"""Products with plaintexts up to which a program is also run in slots, in the clear: without and
with a search before it. On two cores, 2,700 of them take a second."""
STAGES = {
    "own_precision": "the module in its own precision",
    "traced": "the traced graph",
    "functions": "the functions that the polynomials approximate",
    "polynomials": "the polynomials",
    "packed": "the packed program, simulated",
    "ciphertexts": "ciphertexts",
}
"""Figure -> what is compared with the module."""


def figures(
    asked: Asked, traced: Module, lowered: Lowered, *, searched: bool
) -> dict[str, float | None]:
    """Greatest errors beside the user's module, by `STAGES`.

    ``packed_inputs`` is the number of inputs that the packed program answered: one batch.

    A figure is None if it is not known: functions that a recipe does not name, a packed program
    that would take long.

    Args:
        asked: what the module answered.
        traced: its traced module.
        lowered: the program.
        searched: whether a search came before; then more time may be spent.

    Raises:
        AtlasError: the packed program answers otherwise than its polynomials.
    """
    program = with_embedding(lowered.program, lowered.client)
    client = client_program(lowered.client, program, lowered.head)
    arrays = asked.inputs.arrays

    def far(found: Arrays) -> list[Apart]:
        """How far answers to the first inputs are from the module's."""
        rows = rows_of(found)
        some, wanted = ({n: a[:rows] for n, a in one.items()} for one in (arrays, asked.answers))
        return apart(traced, some, found, wanted)

    sums, functions = both_answers(lowered.poly, client.embedded(arrays))
    found = {
        "own_precision": asked.own,
        "traced": asked.traced,
        "functions": greatest_error(far(functions)) if knows_model(lowered.poly) else None,
        "polynomials": greatest_error(polynomials := far(sums)),
        "packed": None,
    }
    products = program_costs(program).by(lambda op: None)[None].plaintext_products
    if products <= (MANY if searched else FEW):
        engine = SIM.make_engine(program, cast(ParameterSet, lowered.parameters), no_progress)
        _, part = next(batches(arrays, client.batch))
        packed = client.query(part, unchecked=True)
        results = execute(engine, program, encrypt_all(engine, packed), packed.public)
        answers = far(client.answers(decrypt_all(engine, results), packed.count).outputs)
        _require_same(answers, polynomials)
        found["packed"] = greatest_error(answers)
        found["packed_inputs"] = packed.count
    return found


def _require_same(packed: Sequence[Apart], polynomials: Sequence[Apart]) -> None:
    """Raise AtlasError if a packed program errs by more than its polynomials on the same inputs."""
    for ours, sums in zip(packed, polynomials, strict=True):
        most = sums.differences[: len(ours.differences)]
        with np.errstate(invalid="ignore"):
            beyond = ours.differences > (1 + SPREAD) * most + sums.rounding
        if (beyond | np.isnan(ours.differences) & np.isfinite(most)).any():
            raise AtlasError(
                f"the packed program answers otherwise than its polynomials: {ours.largest:.3g} "
                f"from the module in the output {ours.output}, where they are {most.max():.3g}",
                why="both compute the same sums and products, so this is a fault of atlasc",
                remedy="report this model",
            )


def far_words(found: Mapping[str, float | None]) -> str:
    """A line that says the figures, and the number of ``inputs`` among them."""
    parts = []
    for name, words in STAGES.items():
        if (far := found.get(name)) is not None:
            rows = found.get(f"{name}_inputs", found["inputs"])
            parts.append(
                f"{words} {far:.2g}" + (f" (on {rows:g})" if rows != found["inputs"] else "")
            )
    return (
        f"greatest error beside the model itself, on {found['inputs']} inputs: {', '.join(parts)}"
    )
