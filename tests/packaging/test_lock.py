"""What is installed and run in CI is named by a digest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_pin_has_hashes() -> None:
    """Other versions, and packages that nobody pinned, are not in the lock."""
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    pins = [re.sub(r"\s+--hash=sha256:[0-9a-f]{64}", "", line).strip() for line in lines]
    wanted = (ROOT / "constraints.txt").read_text().splitlines()
    assert pins == [line for line in wanted if line and not line.startswith("#")]
    assert all("--hash=sha256:" in line for line in lines)


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_commits(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", one) for one in used)
