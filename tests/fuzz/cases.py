"""Cases that are too large for a file of the corpus, or that are made from a valid file.

Every one of them went wrong once, or is named in a report of an attack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz.content import Content

Case = Callable[[Sequence[Content]], Content]

CASES: dict[str, dict[str, Case]] = {}
