"""What ``emit`` writes: readable, complete, and the same bytes for the same program."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from atlasc.emit import text
from atlasc.emit.program import blocks_of
from atlasc.emit.project import INTERFACE, PROGRAM, RUNTIME, SOURCES, sources, write_project
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, ops_of
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.program.execute import KERNELS
from atlasc.program.function import PRIMITIVES
from atlasc.program.kinds import OUTSIDE
from tests.atlasc.emit.small_programs import SmallParameters, small_program

GOLDEN = Path(__file__).parent / "golden"


def residual() -> tuple[Module, SmallParameters]:
    """A program of two layers and a classifier, which may be changed."""
    case = small_program("residual")
    return case.program, case.parameters


def test_golden() -> None:
    """To renew: write what the test prints into the golden file, after reading it."""
    found = sources(*residual())["src/program.cpp"]
    print(found)
    assert found == (GOLDEN / "program.cpp").read_text()


def test_the_same_program_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        write_project(tmp_path / folder, *residual())
    one = {p.relative_to(tmp_path / "one"): p for p in (tmp_path / "one").rglob("*")}
    assert {str(path) for path in one} >= {f"src/{name}" for name in SOURCES} | {PROGRAM, INTERFACE}
    for path, file in one.items():
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "other" / path).read_bytes()


def test_no_line_of_a_program_is_too_long() -> None:
    for name in ("encoder", "decoder", "elementwise"):
        case = small_program(name)
        for path, content in sources(case.program, case.parameters).items():
            longest = max(map(len, content.splitlines()))
            assert longest <= (140 if path == "README.md" else 100), path


def test_every_op_has_a_kernel() -> None:
    assert set(ops_of("ckks")) == {*KERNELS, *OUTSIDE, "ckks.result"}


def test_both_runtimes_number_primitives_alike() -> None:
    header = (RUNTIME / "include" / "atlasc" / "record.hpp").read_text()
    listed = header.partition("enum class Primitive {")[2].partition("}")[0]
    assert re.findall(r"\w+", listed) == list(PRIMITIVES)


def test_blocks_are_the_layers_and_what_follows() -> None:
    program, _ = residual()
    blocks = blocks_of(program)
    assert [block.name for block in blocks] == ["encoder_layer_0", "encoder_layer_1", "classifier"]
    assert blocks[0].place == "encoder.layer.0"
    assert sum(len(block.ops) for block in blocks) == len(program.ops) - 2
    for before, after in pairwise(blocks):
        assert after.inputs == before.outputs


def test_rotations_must_be_planned() -> None:
    program, parameters = residual()
    del program.attributes["rotations"]
    with pytest.raises(AtlasError, match="rotations of @residual are not planned"):
        sources(program, parameters)
    assert sources(run_passes(program, [RotationKeys()]), parameters)


def test_nothing_is_left_of_a_project_that_fails(tmp_path: Path) -> None:
    program, parameters = residual()
    del program.attributes["rotations"]
    with pytest.raises(AtlasError):
        write_project(tmp_path / "project", program, parameters)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("vit.layers.0", "vit_layers_0"),
        ("long", "long_"),
        ("std", "std_"),
        ("3d", "m3d"),
        ("a__b.", "a_b"),
        ("é", "unnamed"),
    ],
)
def test_identifiers(path: str, name: str) -> None:
    assert text.identifier(path) == name


def test_strings_are_escaped() -> None:
    assert text.string('a"b\\c\n\x01') == r'"a\"b\\c\012\001"'
