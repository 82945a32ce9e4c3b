"""Writes what follows from the op declarations: the IR reference, and the types of the names of ops
and of attributes.

``python -m atlasc.ir.text.reference docs/ir-reference.md ir/ops/names.py``. The text around the
declarations is in ``reference.md.jinja``.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from atlasc.ir.module import LEVELS, ops_of
from atlasc.ir.opdef import COMMON, KINDS, OPS, AttributeDef
from atlasc.ir.types import DTYPES, SIDES


def render() -> str:
    """The reference as Markdown."""
    source = Path(__file__).with_name("reference.md.jinja").read_text(encoding="utf-8")
    environment = Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    levels = [(level, [OPS[name] for name in ops_of(level)]) for level in LEVELS]
    return environment.from_string(source).render(
        dtypes=DTYPES, sides=SIDES, kinds=KINDS, common=COMMON, levels=levels
    )


def render_names() -> str:
    """The source of ``ir/ops/names.py``."""
    names = "".join(f'    "{name}",\n' for level in LEVELS for name in ops_of(level))
    declared: dict[str, list[AttributeDef]] = {}
    for one in (*COMMON, *(one for definition in OPS.values() for one in definition.attributes)):
        declared.setdefault(one.name, []).append(one)
    attributes = "".join(_typed(name, declared[name]) for name in sorted(declared))
    return (
        '"""The names of all ops, and their attributes, as types, so that mypy and editors know '
        'them.\n\n``make docs`` writes this file from the declarations.\n"""\n\n'
        "from __future__ import annotations\n\n"
        "from typing import Literal, TypeAlias, TypedDict\n\n"
        "from atlasc.ir.approximation import ApproximationAttribute\n"
        "from atlasc.ir.layout import Layout\n"
        "from atlasc.ir.opdef import Symbol\n\n"
        f"OpName: TypeAlias = Literal[\n{names}]\n\n\n"
        "class Attributes(TypedDict, total=False):\n"
        '    """The attributes of ops. The declaration of an op says which of them it takes."""\n\n'
        f"{attributes}"
    )


def _typed(name: str, declared: Sequence[AttributeDef]) -> str:
    """An attribute as an entry of ``Attributes``, with its meanings as a comment."""
    kinds = {kind for one in declared for kind in KINDS[one.kind].annotation.split(" | ")}
    meanings = "; ".join(dict.fromkeys(one.doc for one in declared))
    comment = textwrap.wrap(meanings, 100, initial_indent="    # ", subsequent_indent="    # ")
    return "\n".join([*comment, f"    {name}: {' | '.join(sorted(kinds))}", ""])


if __name__ == "__main__":
    reference, names = map(Path, sys.argv[1:])
    reference.write_text(render(), encoding="utf-8")
    names.write_text(render_names(), encoding="utf-8")
