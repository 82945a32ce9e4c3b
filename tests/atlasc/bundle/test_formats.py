"""Files of released versions are read, as docs/formats.md promises."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import atlasc
from atlasc.targets import find_target
from tests.atlasc.bundle.formats.make import HERE, PARAMETERS, PLAN, slots

RELEASES = sorted(path for path in HERE.iterdir() if path.name[0].isdigit())


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy: a ledger is written, and files of keys are their owner's, which git does not keep."""
    folder = tmp_path / "release"
    shutil.copytree(request.param, folder)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return folder


def test_there_are_files_of_a_release() -> None:
    assert [path.name for path in RELEASES]


def test_a_program_with_its_keys_query_and_answer(release: Path) -> None:
    program = atlasc.load(release / "program")
    client = atlasc.Client(program, release / "keys")
    server = atlasc.Server(program, release / "keys")
    query = (release / "query").read_bytes()
    again = server.execute(query)
    with np.load(release / "expected.npz") as file:
        expected = dict(file)
    for answer in ((release / "answer").read_bytes(),):
        found = client.decrypt(answer).outputs
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-3)
    assert len(again) == len((release / "answer").read_bytes())


def test_keys_and_a_ciphertext_of_our_engine(release: Path) -> None:
    target, keys = find_target("cpu"), release / "cpu"
    client = target.role_engine("client", keys / "client", PARAMETERS)
    server = target.role_engine("server", keys / "server", PARAMETERS, PLAN)
    x = server.deserialize((keys / "ciphertext").read_bytes())
    product = client.deserialize(server.serialize(server.mul(x, server.rotate(x, 1))))
    expected = slots() * np.roll(slots(), -1)
    np.testing.assert_allclose(client.decrypt(product), expected, atol=1e-4)
