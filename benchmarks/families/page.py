"""docs/models.md: which families are compiled, and which are refused and why.

The page is written from ``measured.json``, which the command of this package fills, and from the
rules of the frontend: ``make docs`` writes it after a new rule or activation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from jinja2 import Environment, StrictUndefined

from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.frontend.rules.aten_rules import ATEN_RULES
from atlasc.passes.frontend.rules.patterns import PATTERNS
from benchmarks.families.base_shapes import SHAPES, Found
from benchmarks.families.further import FURTHER
from benchmarks.families.models import FAMILIES, Family
from benchmarks.families.stages import STAGES, Outcome

LARGEST_ERROR = 1e-4
"""Greatest mean difference of an answer, as a share of how outputs vary, under the recipe."""
TEMPLATE = Path(__file__).with_name("models.md.jinja")
MEASURED = Path(__file__).with_name("measured.json")
PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def record(kind: Literal["tiny", "further", "base"], name: str, outcome: Outcome | Found) -> None:
    """Put the outcome of a family into ``measured.json``, and write the page again."""
    known = measured()
    known["versions"] = {
        one.__name__: one.__version__.partition("+")[0] for one in (torch, transformers)
    }
    known[kind][name] = asdict(outcome)
    text = json.dumps(known, indent=1, allow_nan=True)
    MEASURED.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(render(), encoding="utf-8")


def measured() -> dict[str, dict[str, Any]]:
    """The facts so far: ``tiny``, ``further`` and ``base`` by family, and ``versions`` of
    libraries.
    """
    if not MEASURED.exists():
        return {"tiny": {}, "further": {}, "base": {}, "versions": {}}
    found: dict[str, dict[str, Any]] = json.loads(MEASURED.read_text("utf-8"))
    return found


def render() -> str:
    """The page as Markdown."""
    known = measured()
    tiny = {name: Outcome(**known["tiny"][name]) for name in FAMILIES if name in known["tiny"]}
    base = {name: Found(**known["base"][name]) for name in SHAPES if name in known["base"]}
    further = {n: Outcome(**known["further"][n]) for n in FURTHER if n in known["further"]}
    environment = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        families=len(FAMILIES),
        counts={stage: sum(stage in one.reached for one in tiny.values()) for stage in STAGES},
        tiny=[_tiny_row(FAMILIES[name], name, one) for name, one in tiny.items()],
        further=[_further_row(FURTHER[name], name, one) for name, one in further.items()],
        further_families=len(FURTHER),
        further_equal=sum(_is_equal(one) for one in further.values()),
        base=[_base_row(name, one) for name, one in base.items() if not one.refusal],
        missing=[name for name in SHAPES if name not in base],
        refusals=[
            *_refusals(tiny, base),
            *((n, one.refusal) for n, one in further.items() if one.refusal),
        ],
        ops=[f"`{name}`" for name in sorted({op.split(".")[1] for op in ATEN_RULES})],
        activations=[f"`{name}`" for name in ACTIVATIONS],
        expressions=len({form for form, _ in PATTERNS if "(" in form}),
        versions=[" ".join(pair) for pair in known["versions"].items()],
    )


def _tiny_row(family: Family, name: str, one: Outcome) -> tuple[str, ...]:
    figures = map(_error, (one.traced, one.packed, one.answer, one.chosen))
    counts = ("–",) * 3
    if STAGES[2] in one.reached:
        counts = (str(one.answered), str(one.levels), str(one.bootstraps))
    return (name, f"`{family.model.rpartition(':')[2]}`", *figures, *counts)


def _further_row(family: Family, name: str, one: Outcome) -> tuple[str, ...]:
    """The row without the error on chosen inputs: there was no search. The state comes second."""
    label, model, *figures, _, answered, levels, bootstraps = _tiny_row(family, name, one)
    state = "equal" if _is_equal(one) else "refused" if one.refusal else "differs"
    return (label, model, state, *figures, answered, levels, bootstraps)


def _is_equal(one: Outcome) -> bool:
    """Whether a program was made that answers as HuggingFace does."""
    return STAGES[2] in one.reached and one.answer <= LARGEST_ERROR


def _base_row(name: str, one: Found) -> tuple[str, ...]:
    tokens = SHAPES[name].tokens
    lowering = f"{one.seconds:.0f} s, {one.memory / 2**30:.1f} GiB"
    run = f"{one.predicted:,.0f} s, {one.program_memory / 2**30:.1f} GiB"
    model, shown = SHAPES[name].model, "–" if tokens is None else str(tokens)
    return (name, model, shown, lowering, f"{one.levels:,}", f"{one.bootstraps:,}", run)


def _error(error: float) -> str:
    return "–" if math.isnan(error) else f"{error:.0e}".replace("e-0", "e-")


def _refusals(tiny: dict[str, Outcome], base: dict[str, Found]) -> Iterator[tuple[str, str]]:
    """Name and error of what is refused; a true shape that fails as its tiny model, once."""
    for name in FAMILIES:
        errors = (
            tiny[name].refusal if name in tiny else "",
            base[name].refusal if name in base else "",
        )
        if errors[0]:
            yield name, errors[0]
        elif errors[1]:
            yield f"{name}, {SHAPES[name].model}", errors[1]


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
