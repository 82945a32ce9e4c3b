"""What can be seen of the Dockerfiles without building them."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from doc_blocks import Block, faults

from atlasc.service import v2

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "packaging" / "docker").glob("*.Dockerfile"))
TAGS = "cp313-cp313-manylinux_2_35_x86_64.whl"
WHEELS = {
    "client": f"dist/atlasc-1.2.3-{TAGS}",
    "server": f"dist/atlasc-1.2.3-{TAGS}",
    "server-cuda": f"dist/cuda/atlasc-1.2.3-1cuda-{TAGS}",
}
"""The file as ``make wheels`` names it, for the Python of the base image."""


def instructions(file: Path) -> list[tuple[str, str]]:
    """Name and argument of each instruction; comments are left out, and lines joined."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [
        (name, rest.strip()) for line in joined if line for name, _, rest in [line.partition(" ")]
    ]


def value(file: Path, name: str) -> str:
    """The argument of the only instruction of a name."""
    [found] = [rest for one, rest in instructions(file) if one == name]
    return found


def test_there_is_one_for_each_role() -> None:
    assert {file.stem for file in FILES} == {*WHEELS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_base_and_user(file: Path) -> None:
    assert re.fullmatch(r"debian:\d+\.\d+-slim@sha256:[0-9a-f]{64}", value(file, "FROM"))
    names = [name for name, _ in instructions(file)]
    user, group = value(file, "USER").split(":")
    assert int(user) > 0
    assert int(group) > 0
    # Nothing is installed or copied after root is left behind, and the program starts after it.
    assert names.index("USER") > max(i for i, n in enumerate(names) if n in ("RUN", "COPY"))
    assert names.index("ENTRYPOINT") > names.index("USER")
    assert "HEALTHCHECK" in names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_the_wheel_gets_in(file: Path) -> None:
    assert not {"ADD", "ARG"} & {name for name, _ in instructions(file)}
    *sources, target = value(file, "COPY").split()
    assert target == "/tmp/"
    named = [one for one in sources if not (ROOT / one).is_file()]
    taken = {name for name, wheel in WHEELS.items() for one in named if fnmatch(wheel, one)}
    assert len(named) == 1 and {WHEELS[name] for name in taken} == {WHEELS[file.stem]}
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert [rule for rule in rules if not rule.startswith("#")] == [
        "*", "!constraints.txt", "!dist/*.whl", "!dist/cuda/*.whl",
    ]  # fmt: skip
    assert not re.search(r"(?i)secret|password|token\s*=", value(file, "ENV"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_its_commands_exist(file: Path) -> None:
    words = json.loads(value(file, "ENTRYPOINT"))
    shown = re.findall(r"^# +(atlasc-client query .*?)$(?=\n#\n)", file.read_text(), re.M | re.S)
    lines = [" ".join(words)] if len(words) > 1 else []
    lines += [re.sub(r"atlasc-client|\\|^#", lambda m: "atlasc" * (m[0][0] == "a"), one, flags=re.M)
              for one in shown]  # fmt: skip
    assert lines
    for line in lines:
        text = " ".join(line.split())
        assert faults(Block(file.name, 1, "", text, "")) == []


@pytest.mark.parametrize("name", ["server", "server-cuda"])
def test_the_health_check_asks_what_the_service_answers(name: str) -> None:
    check = value(ROOT / "packaging" / "docker" / f"{name}.Dockerfile", "HEALTHCHECK")
    [path] = re.findall(r"http://127\.0\.0\.1:8000(/[\w/]+)", check)
    assert path in {route.path for route in v2.router.routes}  # type: ignore[attr-defined]
