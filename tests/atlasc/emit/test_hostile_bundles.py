"""Hostile bundles, of the table for the client in Python, and the client in C++ that is emitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.manifest import PROGRAM_FILE
from atlasc.client.in_clear import require_listed
from atlasc.ir.errors import AtlasError
from tests.atlasc.cli.command import Outcome
from tests.atlasc.client.interfaces import rows_of, with_rows
from tests.atlasc.remote.hostile import forged
from tests.atlasc.remote.test_hostile_service import BUNDLES, INTERFACE

WRITTEN = "interface.safetensors"


@pytest.mark.deep("projects")
@pytest.mark.parametrize("name", BUNDLES)
def test_no_client_is_emitted_of_a_hostile_bundle(texts: Path, tmp_path: Path, name: str) -> None:
    """None, or the honest one: of the parts that were changed nothing is read."""
    edits, _ = BUNDLES[name]
    if INTERFACE in edits:
        edits = {**edits, PROGRAM_FILE: edits[INTERFACE]}
    bundle = forged(texts / "bundle", tmp_path / "bundle", edits, ("client", "server"))
    written = [tmp_path / one / WRITTEN for one in ("honest", "hostile")]
    honest = Outcome(("emit", texts / "bundle", "-o", tmp_path / "honest"), None)
    hostile = Outcome(("emit", bundle, "-o", tmp_path / "hostile"), None)
    assert honest.code == 0, honest.err
    if hostile.code == 0:
        assert PROGRAM_FILE not in edits
        assert written[1].read_bytes() == written[0].read_bytes()
    else:
        assert hostile.code == 2 and "Traceback" not in hostile.err, hostile.err
        assert not (tmp_path / "hostile").exists()


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("input_ids", (2, 6), r"sees input_ids \[2, 6\];"),
        ("q\x1b", (2, 6), r"sees q\\x1b"),
        ("5", (2, 6), "sees 5"),
        ("position", (2, 99), "which is not of the places of a text"),
        ("position", (2, 6, 8), "which is not of the places of a text"),
    ],
)
def test_a_program_may_show_no_more(
    texts: Path, name: str, shape: tuple[int, ...], words: str
) -> None:
    interface = load_bundle(texts / "bundle").interface
    require_listed(interface)
    publics = [*rows_of(interface, "publics"), {"name": name, "shape": shape}]
    with pytest.raises(AtlasError, match=words) as caught:
        require_listed(with_rows(interface, publics=publics))
    assert caught.value.what == "the program asks for an input in the clear"


def test_the_input_of_a_client_is_not_public(texts: Path) -> None:
    interface = load_bundle(texts / "bundle").interface
    (private, *others) = rows_of(interface, "inputs")
    inputs = [private | {"name": "attention_mask"}, *others]
    with pytest.raises(AtlasError, match="and that it is encrypted"):
        require_listed(with_rows(interface, inputs=inputs))
