"""Client and server on the simulator, with bytes between them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tiny_model import write_ids

from atlasc.api.roles import Client, Server, keygen
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.messages import Message
from atlasc.ir.errors import AtlasError
from atlasc.run import session
from atlasc.run.session import simulate


@pytest.fixture(scope="module")
def bundle(texts: Path) -> Bundle:
    return load_bundle(texts / "bundle")


def test_texts_and_their_masks_travel_as_bytes(bundle: Bundle, tmp_path: Path) -> None:
    keygen(bundle, tmp_path / "keys")
    client = Client(bundle, tmp_path / "keys")
    server = Server(bundle, tmp_path / "keys" / "server")
    write_ids(tmp_path / "ids.jsonl", [3, 5])
    arrays = bundle.load_inputs(tmp_path / "ids.jsonl").arrays
    query = client.query(arrays).to_bytes()
    answer, timing = server.answer(Message.read(query, "query", bundle))
    assert timing is None  # nothing was encrypted
    found = client.decrypt(answer.to_bytes())
    expected = simulate(bundle.client, bundle.poly, arrays)
    same = session.run(bundle, arrays, expected=expected)
    for name, values in expected.items():
        assert np.abs(found.outputs[name] - values).max() <= 1e-9
        np.testing.assert_allclose(found.outputs[name], same.outputs[name], atol=1e-12)
    assert found.refused == {}
    client.engine = server.engine
    with pytest.raises(AtlasError, match="encrypt is impossible"):
        client.query(arrays)


def test_a_client_leaves_no_core_dump(bundle: Bundle, tmp_path: Path) -> None:
    """In a process of its own, as a user's program may be one."""
    keygen(bundle, tmp_path / "keys")
    code = (
        "import ctypes, resource, sys, atlasc\n"
        "limit = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))\n"
        "client = atlasc.Client(sys.argv[1], sys.argv[2])\n"
        "dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0], dumpable)\n"
    )
    words = [sys.executable, "-c", code, str(bundle.folder), str(tmp_path / "keys")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]


def test_threads_share_a_server(bundle: Bundle, tmp_path: Path) -> None:
    """Eight threads, forty queries with masks of their own: each gets its own answer."""
    keygen(bundle, tmp_path / "keys")
    client, server = Client(bundle, tmp_path / "keys"), Server(bundle, tmp_path / "keys")
    write_ids(tmp_path / "ids.jsonl", [1 + number % 6 for number in range(40)])
    inputs = bundle.load_inputs(tmp_path / "ids.jsonl")
    expected = simulate(bundle.client, bundle.poly, inputs.arrays)

    def asked(row: int) -> dict[str, np.ndarray]:
        query = client.query(inputs.take([row]).arrays).to_bytes()
        return client.decrypt(server.execute(query)).outputs

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(asked, range(len(inputs))))
    for name, values in expected.items():
        found = np.concatenate([answer[name] for answer in answers])
        assert np.abs(found - values).max() <= 1e-9
    assert len(client.ledger.path.read_text().splitlines()) == 80
