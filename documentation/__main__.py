"""Writes what follows from the code: ``python -m documentation docs/reference`` writes the pages,
and the types of the options of ``atlasc.compile``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from documentation import api, changes, commands, errors, passes, protocol

PAGES = {
    "commands.md": commands.page,
    "api.md": api.page,
    "passes.md": passes.page,
    "protocol.md": protocol.page,
    "errors.md": errors.page,
}
"""File -> what writes its text."""


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    changes.FILE.write_text(changes.text(), encoding="utf-8")
