"""Writes what follows from the op declarations: the IR reference, and the type of the names of ops.

``python -m atlasc.ir.text.reference docs/ir-reference.md ir/ops/names.py``. The text around the
declarations is in ``reference.md.jinja``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from atlasc.ir.module import LEVELS, ops_of
from atlasc.ir.opdef import COMMON, KINDS, OPS
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
    return (
        '"""The names of all ops as a type, so that mypy and editors know them.\n\n'
        '``make docs`` writes this file from the declarations.\n"""\n\n'
        "from typing import Literal, TypeAlias\n\n"
        f"OpName: TypeAlias = Literal[\n{names}]\n"
    )


if __name__ == "__main__":
    reference, names = map(Path, sys.argv[1:])
    reference.write_text(render(), encoding="utf-8")
    names.write_text(render_names(), encoding="utf-8")
