"""Types of the options that ``atlasc.compile`` takes by name, so that a type checker finds a wrong
one: ``atlasc/api/changes.py``.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from atlasc.compilation.options import CompileOptions

FILE = Path(__file__).resolve().parents[1] / "atlasc" / "api" / "changes.py"
_HEAD = '''\
"""Types of single options of ``atlasc.compile``. ``python -m documentation`` writes this file."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import TypedDict


class Changes(TypedDict, total=False):
    """Options of :class:`atlasc.CompileOptions` by name; None is the default.

    A number or a choice with a spelling on the command line, such as ``4G``, may be that text.
    Where the option of the command line has another name, it is beside the field.
    """

'''


def text() -> str:
    """The content of the file."""
    lines = []
    for field in fields(CompileOptions):
        kinds = str(field.type).removesuffix(" | None")
        if kinds != "str" and (field.metadata["option"].parse or kinds == "Path"):
            kinds += " | str"
        facts = field.metadata["option"]
        spelled = f"  # {facts.spelling(field.name)}" if facts.of else ""
        lines.append(f"    {field.name}: {kinds} | None{spelled}\n")
    return _HEAD + "".join(lines)
