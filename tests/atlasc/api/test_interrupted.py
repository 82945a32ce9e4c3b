"""A search that ends early in Python goes on, by the journal that was named or the kept one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import atlasc
from atlasc.ir.errors import AtlasError
from tests.atlasc.cli.command import DATA, MODEL

SMALL: dict[str, Any] = {"target": "sim", "cost": "levels", "evaluations": 60}


def _interrupted_after(count: int) -> Any:
    def progress(what: str, done: int, total: int | None) -> None:
        if what.startswith("searching") and done >= count:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("named", [True, pytest.param(False, marks=pytest.mark.deep("search"))])
def test_an_interrupted_search_goes_on(tmp_path: Path, named: bool) -> None:
    journal = tmp_path / "evaluations.jsonl" if named else None
    with pytest.raises(KeyboardInterrupt, match="continues from its evaluations") as caught:
        atlasc.compile(MODEL, DATA, journal=journal, progress=_interrupted_after(6), **SMALL)
    (place,) = re.findall("journal='([^']+)'", str(caught.value))
    kept = Path(place).read_text().splitlines()
    assert len(kept) > 5 and (journal is None or Path(place) == journal)
    program = atlasc.compile(MODEL, DATA, journal=place, **SMALL)
    lines = Path(place).read_text().splitlines()
    assert lines[: len(kept)] == kept and len(set(lines)) == len(lines), "nothing is repeated"
    # The program's own front serves --front.
    again = atlasc.compile(MODEL, DATA, front=program.folder, point=1, target="sim")
    cheapest = again.bundle.manifest.settings
    assert cheapest["levels"] <= program.bundle.manifest.settings["levels"]


def test_a_search_that_finds_nothing_is_kept() -> None:
    with (
        pytest.warns(UserWarning, match="the search is kept: the same call with journal="),
        pytest.raises(AtlasError, match="error"),
    ):
        atlasc.compile(MODEL, DATA, max_error=1e-300, **SMALL)
