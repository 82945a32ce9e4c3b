"""A model whose texts are C++: none of them reaches a compiler as code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from cpp_build import Builder

from atlasc.emit import text
from atlasc.emit.program import blocks_of
from atlasc.emit.project import sources, write_project
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from tests.atlasc.emit.cpp import STRICT
from tests.atlasc.emit.small_programs import SmallParameters, small_program
from tests.atlasc.emit.test_programs import INCLUDES

MARKER = "void injected"
HOSTILE = (
    f"layer.0\n{MARKER}() {{}}\n//",
    f"layer.0\r{MARKER}() {{}}\r//",
    f"layer.0\u2028{MARKER}() {{}}\u2028\x0b\x0c\x85//",
    "layer.0\\",
    "layer.0??/",
    f'layer.0", {MARKER}, "\\',
    "layer.0 */ /* é \U0001f600 \x1b[31m %s {{ name }} {% raw %} ${x} $<1:a>",
    "007",
    "square",
    "context",
    "v1",
    "x" * 300,
)


def hostile(texts: str) -> tuple[Module, SmallParameters]:
    """Two layers, every text of which is given from outside."""
    case = small_program("residual")
    program = case.program
    program.name = texts if texts.isprintable() else "hostile"  # a module refuses the others
    for op in program.ops:
        op.location = texts
        if "part" in op.attributes:
            op.attributes["part"] = texts
        for key, value in op.attributes.items():
            if hasattr(value, "name"):
                renamed = type(value)(f"{value.name}{re.sub('[^ -~é]', '', texts)}")
                program.symbols[renamed.name] = program.symbols[value.name]
                op.attributes[key] = renamed
    return program, case.parameters


@pytest.mark.parametrize("texts", HOSTILE, ids=ascii)
def test_a_hostile_text_is_data(texts: str) -> None:
    for path, content in sources(*hostile(texts)).items():
        assert content.isascii() or path == "README.md"
        assert content.isprintable() or set(re.findall(r"[^ -~]", content)) == {"\n"}
        assert "??" not in content
        outside = re.sub(r'"(\\.|[^"\\])*"|//.*', "", content)  # neither literal nor comment
        assert MARKER not in outside, path
        assert not re.search(r"\\$", content, re.MULTILINE)


@pytest.mark.deep("projects")
def test_hostile_texts_compile(cpp: Builder, tmp_path: Path) -> None:
    parts = []
    for number, texts in enumerate(HOSTILE):
        program, parameters = hostile(texts)
        program.name = f"p{number}"
        write_project(tmp_path / str(number), program, parameters)
        folder = tmp_path / str(number) / "src"
        parts.append(f'#include "{folder / "program.cpp"}"')
    source = tmp_path / "all.cpp"
    source.write_text("\n".join(parts))
    built = cpp.object(tmp_path / "all", source, (*STRICT, *INCLUDES, "-trigraphs"))
    assert b"injectedv" not in built.read_bytes()


def test_functions_have_names_of_their_own() -> None:
    program, _ = hostile("layer.0")
    for number, op in enumerate(program.ops):
        op.location = ("results", "Values", "v4", "context", "3.x", "execute")[number % 6]
    names = [block.name for block in blocks_of(program)]
    assert not set(names) & {"results", "Values", "v4", "context", "execute"}


def test_strings_are_printable_ascii() -> None:
    assert text.string("a??/\né\u20281") == r'"a\?\?/\012\303\251\342\200\2501"'
    assert text.comment("a\\\nb??/*/ é") == "a__b_____ _"
    for broken in ("a\0b", "\ud800"):
        with pytest.raises(AtlasError, match="cannot be emitted"):
            text.string(broken)


@pytest.mark.parametrize("name", [*HOSTILE[:7], "", "a/0", "../a"], ids=ascii)
def test_names_of_inputs_and_arrays_are_those_of_files(name: str) -> None:
    for kind in ("ckks.input", "ckks.output"):
        program, parameters = hostile("layer.0")
        next(op for op in program.ops if op.name == kind).attributes["name"] = name
        with pytest.raises(AtlasError, match="cannot be called"):
            sources(program, parameters)
    with pytest.raises(AtlasError, match="an array cannot be called"):
        sources(hostile_array("weight\n"), parameters)


def hostile_array(name: str) -> Module:
    program, _ = hostile("layer.0")
    op = next(op for op in program.ops if op.name == "ckks.linear_transform")
    weight = op.attributes["weight"]
    op.attributes["weight"] = type(weight)(name)
    program.symbols[name] = program.symbols[weight.name]
    return program


def test_only_literals_are_emitted() -> None:
    program, parameters = hostile("layer.0")
    op = next(op for op in program.ops if op.name == "ckks.chebyshev")
    for value in (np.inf, np.nan):
        op.attributes["coefficients"] = [0.5, value]
        with pytest.raises(AtlasError, match="a coefficient is not finite"):
            sources(program, parameters)
