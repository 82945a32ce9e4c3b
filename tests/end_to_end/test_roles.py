"""Client and server apart: separate processes, separate files, real ciphertexts, no bootstraps."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tiny_model import Tiny, make_tiny, simulated

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.manifest import PROGRAM_FILE
from atlasc.ir.files import sha256_of
from atlasc.program.kinds import OUTSIDE
from atlasc.targets.program import EMBEDDING, identity_of, with_embedding

pytestmark = pytest.mark.encrypted

ROWS = [3, 8]
LARGEST_ERROR = 1e-5
"""A product at N = 2^15 adds 7e-8; there are 15 in a row."""


def atlasc(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "atlasc", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@dataclass(frozen=True)
class Machines:
    """Two folders that stand for two machines, after one exchange.

    Attributes:
        whole: where the model was compiled.
        client, server: what each of the two has.
    """

    whole: Tiny
    client: Path
    server: Path


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    root = tmp_path_factory.mktemp("machines")
    whole = make_tiny(root, "desilo")
    client, server = root / "client machine", root / "server machine"
    for machine, role in ((client, "client"), (server, "server")):
        shutil.copytree(whole.bundle / role, machine / "bundle" / role)
        shutil.copy(whole.bundle / "manifest.json", machine / "bundle")
    shutil.copy(whole.data, client)

    atlasc("keygen", client / "bundle", "--keys", client / "keys")
    shutil.move(client / "keys" / "server", server / "keys")
    atlasc(
        "encrypt", client / "bundle" / "client", "--keys", client / "keys" / "client",
        "--input", client / "images.npz", "--index", ",".join(map(str, ROWS)),
        "-o", client / "query",
    )  # fmt: skip
    shutil.move(client / "query", server / "query")
    atlasc(
        "execute", server / "bundle", "--keys", server / "keys",
        "--query", server / "query", "-o", server / "answer",
    )  # fmt: skip
    shutil.copy(server / "answer", client / "answer")
    return Machines(whole, client, server)


def decrypt(machines: Machines, *more: str | Path) -> subprocess.CompletedProcess[str]:
    keys, answer = machines.client / "keys", machines.client / "answer"
    return atlasc(
        "decrypt", machines.client / "bundle", "--keys", keys, "--answer", answer, *more
    )  # fmt: skip


def test_the_answer_equals_the_polynomials(machines: Machines) -> None:
    outputs = json.loads(decrypt(machines, "--json").stdout)["outputs"]
    expected = simulated(load_bundle(machines.whole.bundle), machines.whole.data, ROWS)
    assert set(outputs) == set(expected)
    for name, values in expected.items():
        assert values.shape == (2, 3)
        assert np.abs(np.array(outputs[name]) - values).max() <= LARGEST_ERROR
        assert np.ptp(values, axis=0).max() > 100 * LARGEST_ERROR


def test_decrypt_writes_arrays(machines: Machines, tmp_path: Path) -> None:
    shown = decrypt(machines, "-o", tmp_path / "answer.npz")
    assert "output" in shown.stdout
    with np.load(tmp_path / "answer.npz") as file:
        assert file["output"].shape == (2, 3)


def test_shared_numbers_are_rounded_and_the_key_shares_once(machines: Machines) -> None:
    keys, answer = machines.client / "keys", machines.client / "answer"
    arguments = (
        "decrypt", machines.client / "bundle", "--keys", keys, "--answer", answer, "--share",
        "--json",
    )  # fmt: skip
    shared = json.loads(atlasc(*arguments).stdout)
    expected = simulated(load_bundle(machines.whole.bundle), machines.whole.data, ROWS)["output"]
    numbers = np.array(shared["outputs"]["output"])
    assert np.array_equal(numbers, np.round(numbers, 2))
    assert LARGEST_ERROR < np.abs(numbers - expected).max() < 0.1
    assert "have shared as many answers as they may" in atlasc(*arguments, code=2).stderr


def test_the_server_never_has_a_secret_key(machines: Machines) -> None:
    secret = (machines.client / "keys" / "client" / "secret.key").read_bytes()[-4096:]
    files = [path for path in machines.server.rglob("*") if path.is_file()]
    assert {"relinearization.key", "program.air", "manifest.json", "query"} <= {
        path.name for path in files
    }
    for path in files:
        assert secret not in path.read_bytes(), path


def test_keys_are_for_their_owner_alone(machines: Machines) -> None:
    for folder in (machines.client / "keys" / "client", machines.server / "keys"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_the_server_cannot_read_the_answer(machines: Machines) -> None:
    done = atlasc(
        "decrypt", machines.server / "bundle", "--keys", machines.server / "keys",
        "--answer", machines.server / "answer", code=2,
    )  # fmt: skip
    assert "lacks client/" in done.stderr
    done = atlasc(
        "decrypt", machines.whole.bundle, "--keys", machines.server / "keys",
        "--answer", machines.server / "answer", code=2,
    )  # fmt: skip
    assert "these are not the keys of a client" in done.stderr


def test_existing_outputs_are_kept(machines: Machines) -> None:
    keys = machines.client / "keys"
    before = (keys / "client" / "secret.key").read_bytes()
    done = atlasc("keygen", machines.client / "bundle", "--keys", keys, code=2)
    assert "exists already" in done.stderr
    assert (keys / "client" / "secret.key").read_bytes() == before
    done = atlasc(
        "execute", machines.server / "bundle", "--keys", machines.server / "keys",
        "--query", machines.server / "query", "-o", machines.server / "answer", code=2,
    )  # fmt: skip
    assert "exists already" in done.stderr


def test_a_damaged_query_is_refused(machines: Machines, tmp_path: Path) -> None:
    query = tmp_path / "query"
    data = bytearray((machines.server / "query").read_bytes())
    data[len(data) // 2] ^= 1
    query.write_bytes(data)
    done = atlasc(
        "execute", machines.server / "bundle", "--keys", machines.server / "keys",
        "--query", query, "-o", tmp_path / "answer", code=2,
    )  # fmt: skip
    assert "does not match its checksum" in done.stderr
    assert not (tmp_path / "answer").exists()


def test_keys_of_another_program_are_refused(machines: Machines, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    shutil.copytree(machines.server / "keys", keys, copy_function=os.link)
    index = json.loads((keys / "keys.json").read_text())
    amount, _ = index["rotations"].popitem()
    (keys / "keys.json").unlink()
    (keys / "keys.json").write_text(json.dumps(index))
    done = atlasc(
        "execute", machines.server / "bundle", "--keys", keys,
        "--query", machines.server / "query", "-o", tmp_path / "answer", code=2,
    )  # fmt: skip
    assert "made for another program" in done.stderr
    assert f"rotation {amount} to level" in done.stderr
    assert list(tmp_path.iterdir()) == [keys]


def test_answers_and_queries_are_not_mixed_up(machines: Machines) -> None:
    done = atlasc(
        "decrypt", machines.client / "bundle", "--keys", machines.client / "keys",
        "--answer", machines.server / "query", code=2,
    )  # fmt: skip
    assert "is no answer" in done.stderr


def test_a_query_of_another_program_is_refused(machines: Machines, tmp_path: Path) -> None:
    # Another embedding, the same weights of the server.
    other = load_bundle(machines.whole.bundle)
    assert other.program.attributes[EMBEDDING] == identity_of(other.client.embed)
    made = Path(shutil.copytree(machines.server / "bundle", tmp_path / "bundle"))
    manifest = json.loads((made / "manifest.json").read_text())
    changed = with_embedding(other.program, other.poly)
    manifest["program"] = identity_of(changed)
    program = made / PROGRAM_FILE
    arrays = load_file(program)
    with safe_open(program, "np") as file:
        facts = file.metadata() | {"program": manifest["program"]}
    save_file(arrays, program, facts)
    manifest["files"][PROGRAM_FILE] = sha256_of(program)
    (made / "manifest.json").write_text(json.dumps(manifest))
    other = made
    done = atlasc(
        "execute", other, "--keys", machines.server / "keys",
        "--query", machines.server / "query", "-o", tmp_path / "answer", code=2,
    )  # fmt: skip
    assert "belongs to another compiled program" in done.stderr
    assert not (tmp_path / "answer").exists()


def test_times_of_the_ops_lie_beside_the_answer(machines: Machines) -> None:
    place = machines.server / "answer.timing.json"
    written = json.loads(place.read_text())
    program = load_bundle(machines.whole.bundle).program
    computed = [op.name for op in program.ops if op.name not in OUTSIDE]
    assert [op["op"] for op in written["ops"]] == computed
    done = atlasc("inspect", machines.whole.bundle, "--timing", place, "--json")
    timing = json.loads(done.stdout)["timing"]
    assert timing["measured"] == pytest.approx(sum(op["measured"] for op in written["ops"]))
    assert timing["ratio"] == pytest.approx(timing["predicted"] / timing["measured"])
    assert timing["measured"] > 1 and timing["predicted"] > 1
