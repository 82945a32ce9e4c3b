"""The example of each pass, which the reference of passes shows, is what ``atlasc opt`` does."""

from __future__ import annotations

import re
import shlex

import pytest

from atlasc.ir.text.storage import load_module, print_module
from atlasc.passes.framework.pass_base import Pass, parse_pipeline
from atlasc.passes.pipeline import PIPELINE
from atlasc.passes.registry import ALONE, passes
from documentation.passes import AFTER, BEFORE, EXAMPLES, example
from tests.atlasc.cli.command import run

PASSES = (*PIPELINE, *ALONE)
_FLOAT = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def rounded(text: str) -> str:
    """The last digits of a fit differ between processors."""
    return _FLOAT.sub(lambda found: f"{float(found[0]):.9g}", text)


def test_each_pass_has_an_example_and_each_example_a_pass() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir()} == {kind.name for kind in PASSES}


@pytest.mark.parametrize("kind", PASSES, ids=lambda kind: kind.name)
def test_the_command_of_an_example_prints_what_it_shows(
    kind: type[Pass], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command verifies both modules, and ``--verify-each`` reads its result back."""
    monkeypatch.chdir(EXAMPLES / kind.name)
    before, *others = example(kind)
    command, module = before.read_text(encoding="utf-8").split("\n", 1)
    mark, program, *words = shlex.split(command)
    assert (mark, program, words[:3]) == ("//", "atlasc", ["opt", BEFORE, "-p"])
    assert [type(step) for step in parse_pipeline(words[3], passes())] == [kind]
    assert all(file.name == AFTER or file.name in words[3] for file in others)
    assert print_module(load_module(before)) == module, "both texts are as opt prints them"
    after = others[-1].read_text(encoding="utf-8")
    assert after != module
    assert rounded(run(*words, "--verify-each").out) == rounded(after)
