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


def test_install_takes_all_but_torch_by_hashes() -> None:
    """The names that ``make install`` leaves out are pins, and what atlasc asks for is not among
    them, but for torch.
    """
    makefile = (ROOT / "Makefile").read_text()
    found = re.search("^UNLOCKED := (.*)", makefile, re.MULTILINE)
    assert found is not None
    left_out = re.compile(found[1])
    names = re.findall("^([^ =]+)==", LOCK, re.MULTILINE)
    assert all(any(re.fullmatch(one, name) for name in names) for one in found[1].split("|"))
    asked = re.findall(
        r'"([a-z][\w-]*)(?:\[[\w,]+\])?[ >=<!~;]', (ROOT / "pyproject.toml").read_text()
    )
    assert {name for name in asked if left_out.fullmatch(name)} == {"torch"}
    install = makefile[makefile.index("$(STAMP):") : makefile.index("demo: $(STAMP)")]
    lines = [line for line in install.splitlines() if line.startswith("\t$(PIP) install")]
    for line in lines:
        assert "--require-hashes" in line or " torch " in line or "--no-deps" in line


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_commits(file: Path) -> None:
    used = re.findall(r"uses: (.*)", file.read_text())
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", one) for one in used)
