"""Messages in the words of Python, and what the Python interface shows of itself."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.api import progress as progress_module
from atlasc.api.progress import progress, steps_for
from atlasc.api.words import command_line, in_python
from atlasc.generation.ends import Generated
from atlasc.progress import silent
from tests.atlasc.cli.command import refused, run


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("use --sequence-length 64 or more", "use sequence_length=64 or more"),
        ("use --max-error 0.01", "use max_error=0.01"),
        ("--sequence-length is for texts", "sequence_length is for texts"),
        ("use --device-memory 40G or more", 'use device_memory="40G" or more'),
        (
            "use --target 'phantom{device-memory=40G}'",
            'use target="phantom", device_memory="40G"',
        ),
        (
            "--space 'wide{softmax-ranges=measured,share-settings=3}'",
            'space="wide", softmax_ranges="measured", share_settings=3',
        ),
        ("--workers 'ray{address=a:1}'", 'workers="ray", ray_address="a:1"'),
        ("a larger margin of --ranges; more", "a larger margin; more"),
        ("count of --workers needs --workers ray", 'worker_count needs workers="ray"'),
        ("the name of --recipe", "the name of recipe"),
        ("without --recipe, or with --recipe is", 'without recipe, or with recipe="is"'),
        ("leave --measure out", "leave measure out"),
        ("--long windows is for texts", 'long="windows" is for texts'),
        ("or --without prefixes if you give none", "or prefixes=False if you give none"),
        ("--without fill-padding,centre-keys.", "fill_padding=False, centre_keys=False."),
        ("; --unchecked encrypts them", "; unchecked=True encrypts them"),
        ("--trust-pickle", "trust_pickle=True"),
        ("make them with atlasc keygen", "make them with atlasc.keygen()"),
        ("a further prompt (--next), or", "a further prompt (TextSession.say()), or"),
        ("again, encrypted (--anew)", "again, encrypted (TextSession.anew())"),
        # What Python lacks stays as it is.
        ("with atlasc calibrate-backend --bootstrap", "with atlasc calibrate-backend --bootstrap"),
        ("with atlasc run --target sim", "with atlasc run --target sim"),
        ("llama-gguf-split --merge A --target b", "llama-gguf-split --merge A --target b"),
        ("choose with --index", "choose with --index"),
        ("a well-known--thing", "a well-known--thing"),
    ],
)  # fmt: skip
def test_words(text: str, translated: str) -> None:
    assert in_python(text) == translated
    assert in_python(translated) == translated
    with command_line():
        assert in_python(text) == text
    assert in_python(text) == translated


def test_errors_and_warnings_are_in_the_words_of_who_asks(tiny: Tiny, tmp_path: Path) -> None:
    program = atlasc.load(tiny.bundle)
    with pytest.raises(atlasc.AtlasError) as caught:
        atlasc.Client(program, tmp_path / "none")
    assert "atlasc.keygen()" in str(caught.value) and "atlasc.keygen()" in caught.value.remedy
    given = ("--input", tiny.data, "--keys", tmp_path / "none", "-o", tmp_path / "query")
    assert "atlasc keygen" in refused("encrypt", tiny.bundle, *given, "--count", 1)


def test_the_options_of_compile_are_shown() -> None:
    signature = inspect.signature(atlasc.compile)
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in signature.parameters.values()}
    document = atlasc.compile.__doc__ or ""
    for option in fields(atlasc.CompileOptions):
        assert signature.parameters[option.name].default == option.default
        assert f"        {option.name} ({option.type}): " in document
    assert document.index("generate (bool)") < document.index("Raises:")


def test_only_public_names_are_listed() -> None:
    assert dir(atlasc) == sorted(atlasc.__all__)


def test_nothing_private_is_printed(tiny: Tiny, tmp_path: Path) -> None:
    """A notebook prints what a cell ends with, and is passed on."""
    program = atlasc.load(tiny.bundle)
    pixels = np.full((2, *np.load(tiny.data)["pixel_values"].shape[1:]), 0.123456)
    atlasc.keygen(program, tmp_path / "keys")
    client = atlasc.Client(program, tmp_path / "keys")
    server = atlasc.Server(program, tmp_path / "keys")
    query = client.encrypt(pixels)
    answers = client.decrypt(server.execute(query))
    ran = program.run(pixels)
    outputs = [f"{value:.4f}" for value in ran.outputs["output"].ravel() if abs(value) > 1e-3]
    shown = [repr(one) for one in (query, answers, ran, ran.inputs, ran.answer)]
    shown.append(repr(Generated([11, 12], [13], "a secret")))
    assert all(len(one) < 200 for one in shown)
    for secret in ("0.1234", "array(", "secret", "11", *outputs):
        assert not any(secret in one for one in shown), secret


def test_a_bad_row_is_left_out_as_on_the_command_line(tiny: Tiny, tmp_path: Path) -> None:
    program = atlasc.load(tiny.bundle)
    pixels = np.load(tiny.data)["pixel_values"][:3].astype(np.float64)
    pixels[1] = np.nan
    atlasc.keygen(program, tmp_path / "keys")
    client = atlasc.Client(program, tmp_path / "keys")
    with pytest.warns(UserWarning, match="1 input is left out: one bad"):
        query = client.encrypt(pixels)
    assert query.rows == (0, 2) and list(query.left_out) == [1]
    with pytest.raises(atlasc.AtlasError, match="1 input is not fit"):
        client.encrypt(pixels, strict=True)
    np.savez(tmp_path / "bad.npz", pixel_values=pixels)
    given = ("--input", tmp_path / "bad.npz", "--keys", tmp_path / "keys" / "client")
    done = run("encrypt", tiny.bundle, *given, "-o", tmp_path / "query", "--json")
    assert len(json.loads(done.out)["inputs"]) == 2
    refused("encrypt", tiny.bundle, *given, "-o", tmp_path / "other", "--strict")


# --- progress where none is asked for


class Terminal:
    def __init__(self, terminal: bool) -> None:
        self.isatty = lambda: terminal


def test_a_bar_is_shown_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    for watched, expected in ((True, progress), (False, silent)):
        monkeypatch.setattr(progress_module.sys, "stderr", Terminal(watched))
        assert steps_for(None) is expected
        assert steps_for(True) is progress and steps_for(False) is silent
    calls: list[Any] = []
    with steps_for(lambda *call: calls.append(call))("work", total=3) as step:
        step()
    assert calls == [("work", 0, 3), ("work", 1, 3), ("work", 3, 3)], "it ended early"


def test_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    def display(page: str, display_id: bool) -> SimpleNamespace:
        pages.append(page)
        return SimpleNamespace(update=pages.append)

    shell = type("ZMQInteractiveShell", (), {})()
    ipython, shown = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    shown.display, shown.HTML = display, str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.setattr(progress_module, "CELL_SECONDS", 0.0)
    monkeypatch.setattr(progress_module.sys, "stderr", Terminal(False))
    assert steps_for(None) is progress
    with progress("searching <all>", total=2) as step:
        step(note="a")
        step(note="b")
    assert "<progress value=0 max=2>" in pages[0] and "<progress value=1 max=2>" in pages[1]
    assert "searching &lt;all&gt;: 1/2 (50%)" in pages[1] and "<progress" not in pages[2]
    assert pages[-1] == "searching &lt;all&gt;: 0:00:00"
