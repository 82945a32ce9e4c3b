"""Writes the IR reference from the op declarations: ``python -m atlasc.ir.text.reference FILE``.

The text around the declarations is in ``reference.md.jinja``.
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


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
