"""The benchmark of the roles' start runs, and says a figure for each of them."""

from __future__ import annotations

import pytest
from tiny_model import Tiny

from benchmarks.service import roles


@pytest.mark.deep("benchmarks")
def test_every_role_has_a_figure(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    roles.main([str(tiny.bundle), str(tiny.data), "--runs", "1"])
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(rows) == {"import", "keygen", "encrypt", "execute", "decrypt"}
    assert all(float(row.partition(" s")[0]) > 0 for row in rows.values())
    files = {
        name: int(row.split(" enters ")[1].split()[0]) for name, row in rows.items() if "," in row
    }
    assert 10 < files["execute"] <= 30 and 10 < files["decrypt"] <= 40
