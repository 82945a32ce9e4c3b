"""What may leave in the clear is one closed list, in Python and in the runtime library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.bundle.folder import load_bundle
from atlasc.client.in_clear import PUBLIC, in_clear, told
from atlasc.client.program import ClientProgram
from atlasc.ir.errors import AtlasError
from atlasc.runtime.native import load_library
from tests.atlasc.client.interfaces import rows_of, with_rows
from tests.atlasc.remote.conftest import text_bundle

__all__ = ["text_bundle"]


def test_the_library_has_the_same_list() -> None:
    assert tuple(PUBLIC) == load_library().PUBLIC_NAMES


@pytest.mark.parametrize("name", ["input_ids", "x", "attention_mask2", "position"])
def test_the_library_refuses_what_python_did_not_see(text_bundle: Path, name: str) -> None:
    """The rule is kept a second time, where the query is made."""
    client = load_bundle(text_bundle).client
    (mask,) = rows_of(client.interface, "publics")
    interface = with_rows(client.interface, publics=[mask | {"name": name}])
    other = ClientProgram(client.embed, interface)
    ids = np.ones((2, 6), np.int64)
    arrays = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": ids, name: ids}
    with pytest.raises(AtlasError, match="asks for an input in the clear"):
        other.query(arrays)
    assert client.query(arrays).public.keys() == {"attention_mask"}


def test_a_simulation_says_so_in_python_too(tiny: Tiny, tmp_path: Path) -> None:
    atlasc.keygen(tiny.bundle, tmp_path / "keys")
    client = atlasc.Client(tiny.bundle, tmp_path / "keys")
    with pytest.warns(UserWarning, match="the target sim is a simulation: nothing is encrypted"):
        client.encrypt(np.zeros((1, 1, 8, 8), np.float32))


def test_it_is_told_in_one_sentence(text_bundle: Path) -> None:
    interface = load_bundle(text_bundle).client.interface
    assert list(in_clear(interface)) == ["attention_mask [2, 6]"]
    assert told(interface).startswith("the server sees in the clear: attention_mask [2, 6]: which")
