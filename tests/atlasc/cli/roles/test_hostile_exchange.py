"""The Python client and the C++ client: queries and answers pass between them, one table of hostile
inputs and answers is refused by both, and both note it in the one ledger of the key.
"""

from __future__ import annotations

import json
import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_build import OPTIMISED, Builder
from safetensors.numpy import load_file, save_file
from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.api.roles import Client, Server, keygen
from atlasc.api.words import command_line
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.ledger import LEDGER
from atlasc.bundle.messages import Message
from atlasc.cli import app
from atlasc.client.sharing import require_digits
from atlasc.emit.project import save_inputs
from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.run.session import simulate
from tests.atlasc.cli.command import run
from tests.atlasc.client.owners import COPIES, OUTSIDE, owners
from tests.sealed_files import Array, sealed

NAME = "output"


pytestmark = pytest.mark.deep("projects")


@dataclass(frozen=True)
class Exchange:
    """A program with both clients, and keys that they share.

    Attributes:
        tiny: model, data and bundle.
        project: the built C++ project.
        keys: what ``keygen`` wrote.
    """

    tiny: Tiny
    bundle: Bundle
    project: Path
    keys: Path

    @property
    def images(self) -> np.ndarray:
        """Two of the images of calibration."""
        with np.load(self.tiny.data) as file:
            return np.asarray(file["pixel_values"][:2])

    def cpp(self, *words: object) -> subprocess.CompletedProcess[str]:
        """The C++ client with the secret key."""
        program = ("--program", self.project / "interface.safetensors")
        command = [self.project / "build" / "client", *program, *words]
        key = ("--key", self.keys / "client" / "secret.key")
        return subprocess.run([*map(str, (*command, *key))], capture_output=True, text=True)

    def ledger(self) -> list[dict[str, Any]]:
        """What the ledger of the key has."""
        lines = (self.keys / "client" / LEDGER).read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def exchange(tiny_cpu: Tiny, tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Exchange:
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in cpp.environment(OPTIMISED).items():
            environment.setenv(name, value)
        run("emit", tiny_cpu.bundle, "--build", "-o", folder / "project")
    keygen(tiny_cpu.bundle, folder / "keys")
    return Exchange(tiny_cpu, load_bundle(tiny_cpu.bundle), folder / "project", folder / "keys")


# --- answers


def crafted(exchange: Exchange, client: Client, slots: np.ndarray) -> bytes:
    """A ciphertext that decrypts to some slots."""
    (output,) = exchange.bundle.client.interface.outputs
    return client.engine.serialize(client.engine.encrypt(slots, output.level))


def forged(client: Client, genuine: bytes, first: np.ndarray, second: np.ndarray) -> bytes:
    """A ciphertext with the same residues of every prime: identity, level, form (not packed),
    checksum, residues.
    """
    (level,) = struct.unpack("<I", genuine[32:36])
    words = 2 * client.engine.slots * (level + 1)
    parts = [np.resize(part.astype("<u8"), words).tobytes() for part in (first, second)]
    total = 0xCBF29CE484222325
    for word in np.frombuffer(b"".join(parts), "<u8").tolist():
        total = (total ^ word) * 0x100000001B3 % 2**64
    return genuine[:36] + struct.pack("<IQ", 0, total) + b"".join(parts)


def answers(exchange: Exchange, client: Client) -> dict[str, tuple[bytes, bool]]:
    """Ciphertexts by what is wrong with them, and whether a client refuses them."""
    (output,) = exchange.bundle.client.interface.outputs
    magnitude = output.magnitude / output.factor[0]
    owner = owners(Layout.parse(output.layout), [2, 3], 2)[0]
    good = np.where(owner >= 0, np.linspace(-0.5, 0.5, 6)[owner] * magnitude, 0.0)
    last = np.flatnonzero(owner == 5)[-1]

    def all_copies(part: float) -> np.ndarray:
        return np.where(owner == 4, part * OUTSIDE * magnitude, good)

    def one_copy(part: float) -> np.ndarray:
        changed = good.copy()
        changed[last] += part * COPIES * magnitude
        return changed

    free = np.where(owner < 0, 0.9 * magnitude, good)
    noise = np.random.default_rng(0).uniform(-magnitude, magnitude, good.shape)
    table = {
        "good": (good, False),
        "anything where nothing is expected": (free, False),
        "large": (all_copies(0.95), False),
        "too large": (all_copies(1.05), True),
        "copies differ by noise": (one_copy(0.9), False),
        "copies differ": (one_copy(1.1), True),
        "other numbers": (noise, True),
    }
    made = {name: (crafted(exchange, client, s), refused) for name, (s, refused) in table.items()}
    genuine, zeros = made["good"][0], np.zeros(1)
    # c1 = 2^31 decrypts to 2^31 times the secret key, whose slots are small numbers like answers.
    made["values of the secret key"] = (forged(client, genuine, zeros, zeros + 2**31), True)
    words = np.random.default_rng(1).integers(2**35, size=2**12)
    made["garbage"] = (forged(client, genuine, words, words[::-1]), True)
    return made


def sent(place: Path, query: Message, ciphertext: bytes) -> Path:
    """An answer to a query, as a server may make it up."""
    array = Array("U8", (len(ciphertext),), ciphertext)
    metadata = {
        "kind": "answer", "format": "2", "engine": "cpu", "program": query.program,
        "query": query.query, "count": str(query.count),
    }  # fmt: skip
    place.write_bytes(sealed(metadata, {f"{NAME}/0": array}))
    return place


def test_both_clients_refuse_the_same_answers(exchange: Exchange, tmp_path: Path) -> None:
    client = Client(exchange.bundle, exchange.keys)
    table = answers(exchange, client)
    budget = 0
    for number, (name, (ciphertext, refused)) in enumerate(table.items()):
        query = client.query({"pixel_values": exchange.images})
        place = sent(tmp_path / f"{number}.answer", query, ciphertext)
        if name == "garbage":
            with pytest.raises(AtlasError, match="does not decrypt to anything") as caught:
                client.decrypt(place)
            assert f"these keys refused {budget + 1} answers" in caught.value.why
        else:
            assert (client.decrypt(place).refused != {}) == refused, name
        budget += refused
        noted = [entry["event"] for entry in exchange.ledger() if entry["query"] == query.query]
        assert noted == ["query", "answer", *["refused"] * refused]

        done = exchange.cpp("decrypt", "--answer", place, "--output", tmp_path / f"{number}.out")
        assert done.returncode == (0 if not refused else 2 if name == "garbage" else 3), done.stderr
        assert (tmp_path / f"{number}.out").exists() != refused
        if refused:
            assert f"these keys refused {budget} answers" in done.stderr
        # The same digest, and no second refusal.
        assert noted == [e["event"] for e in exchange.ledger() if e["query"] == query.query]


# --- inputs


@pytest.mark.parametrize(
    ("factor", "refused", "doubted"),
    [
        (1.0, False, False),
        (1.2, False, True),
        (3.8, False, True),
        (4.2, True, True),
        (60.0, True, True),
        (np.nan, True, True),
        (-np.inf, True, True),
    ],
)
def test_both_clients_refuse_the_same_inputs(
    exchange: Exchange, tmp_path: Path, factor: float, refused: bool, doubted: bool
) -> None:
    client, interface = Client(exchange.bundle, exchange.keys), exchange.bundle.client
    place = tmp_path / "in.safetensors"
    save_inputs(place, interface, {"pixel_values": exchange.images})
    ((name, tensor),) = load_file(place).items()
    (given,) = interface.interface.inputs
    known = given.magnitude
    reach = np.abs(tensor * given.factor).max(axis=(1, 2))
    # So large that the second row reaches that many times the calibration.
    tensor[1] *= factor * known / reach[1]
    save_file({name: tensor}, place)
    for unchecked in (False, True):
        before = len(exchange.ledger()) if (exchange.keys / "client" / LEDGER).exists() else 0
        expected = not (np.isfinite(factor) and (unchecked or not refused))
        words = ("--input", place, "--output", tmp_path / f"query {unchecked}")
        done = exchange.cpp("encrypt", *words, *["--unchecked"] * unchecked)
        assert (done.returncode == 2) == expected, done.stderr
        scaled = exchange.images * np.array([1, factor], np.float32).reshape(-1, 1, 1, 1)
        with pytest.MonkeyPatch.context() as patch:  # the same tensor, as what is embedded
            if np.isfinite(factor):
                patch.setattr(type(interface), "embedded", lambda *_: {name: tensor})
                scaled = exchange.images
            if expected:
                with pytest.raises(AtlasError):
                    client.query({"pixel_values": scaled}, unchecked=unchecked)
                assert len(exchange.ledger()) == before
                continue
            client.query({"pixel_values": scaled}, unchecked=unchecked)
        found = exchange.ledger()[before:]
        assert len(found) == 2
        assert [bool(entry["doubt"]) for entry in found] == [doubted, doubted]


def test_an_answer_to_a_doubtful_query_of_the_cpp_client_is_not_shared(
    exchange: Exchange, tmp_path: Path
) -> None:
    """What one client noted, the other obeys."""
    place = tmp_path / "in.safetensors"
    save_inputs(place, exchange.bundle.client, {"pixel_values": exchange.images}, "it is odd")
    done = exchange.cpp("encrypt", "--input", place, "--output", tmp_path / "query")
    assert done.returncode == 0, done.stderr
    server = Server(exchange.bundle, exchange.keys / "server")
    (tmp_path / "answer").write_bytes(server.execute((tmp_path / "query").read_bytes()))
    client = Client(exchange.bundle, exchange.keys)
    with pytest.raises(AtlasError, match="is not shared") as caught:
        client.share(tmp_path / "answer")
    assert caught.value.why.startswith("it is odd; the bound on its errors may not hold")
    assert exchange.ledger()[-1]["event"] == "query"  # nothing was decrypted
    assert client.decrypt(tmp_path / "answer").refused == {}


# --- numbers that are passed on


@pytest.fixture
def fresh(exchange: Exchange, tmp_path: Path) -> Exchange:
    """Keys of its own, because a key shares one answer."""
    keygen(exchange.tiny.bundle, tmp_path / "keys")
    return replace(exchange, keys=tmp_path / "keys")


def answered(exchange: Exchange, place: Path) -> Path:
    """The answer to a query of the Python client."""
    query = Client(exchange.bundle, exchange.keys).query({"pixel_values": exchange.images})
    place.write_bytes(Server(exchange.bundle, exchange.keys).execute(query.to_bytes()))
    return place


def both_refuse(exchange: Exchange, answer: Path, bits: int = 30, shares: int = 1) -> str:
    """What both clients say, word by word the same; nothing is written, nothing noted."""
    before, out = exchange.ledger(), answer.with_name("refused.out")
    with command_line(), pytest.raises(AtlasError) as caught:
        Client(exchange.bundle, exchange.keys).share(answer, bits=bits, shares=shares)
    options = ("--share", "--bits", bits, "--shares", shares, "--answer", answer, "--output", out)
    done = exchange.cpp("decrypt", *options)
    assert (done.returncode, done.stderr) == (2, f"error: {caught.value}\n")
    assert not out.exists() and exchange.ledger() == before
    return str(caught.value)


def test_both_clients_refuse_to_share_the_same(fresh: Exchange, tmp_path: Path) -> None:
    answer = answered(fresh, tmp_path / "answer")
    assert "29 bits for 1 answers protect no key" in both_refuse(fresh, answer, 29)
    assert "30 bits for 0 answers protect no key" in both_refuse(fresh, answer, 30, 0)
    for bits, shares in ((60, 1), (5_000, 1), (30, 999_999_999)):
        assert "no digit of output may be passed on" in both_refuse(fresh, answer, bits, shares)
    assert [entry["event"] for entry in fresh.ledger()] == ["query"]


@pytest.mark.parametrize("shares", ["Python", "C++"])
def test_what_one_client_shared_the_other_shares_no_more(
    fresh: Exchange, tmp_path: Path, shares: str
) -> None:
    answer, out = answered(fresh, tmp_path / "answer"), tmp_path / "out.safetensors"
    client = Client(fresh.bundle, fresh.keys)
    flood = require_digits(fresh.bundle.client.interface, 2)[NAME]
    if shares == "Python":
        found = client.share(answer).outputs[NAME]
    else:
        done = fresh.cpp("decrypt", "--share", "--answer", answer, "--output", out)
        assert done.returncode == 0, done.stderr
        left = "1 digit is" if flood.digits == 1 else f"{flood.digits} digits are"
        assert done.stderr == (
            f"note: output: {left} left and may be passed on, at 30 bits\n"
            f"  noise of {flood.deviation:.2g} hides the error of encryption; answer 1 of 1 that "
            "these keys share\n"
        )
        assert out.stat().st_mode & 0o777 == 0o600
        found = load_file(out)[NAME]
    assert "these keys have shared as many answers as they may" in both_refuse(fresh, answer)
    assert [entry["event"] for entry in fresh.ledger()] == ["query", "answer", "share"]
    exact = client.decrypt(answer).outputs[NAME]
    np.testing.assert_array_equal(found, np.round(found, flood.decimals))
    step = 10.0**-flood.decimals
    assert 0 < np.abs(found - exact).max() < 8.6 * flood.deviation + step


@pytest.mark.parametrize("refuses", ["Python", "C++"])
def test_nothing_of_a_refused_answer_is_shared(
    fresh: Exchange, tmp_path: Path, refuses: str
) -> None:
    client, place, out = Client(fresh.bundle, fresh.keys), tmp_path / "answer", tmp_path / "out"
    query = client.query({"pixel_values": fresh.images})
    sent(place, query, answers(fresh, client)["copies differ"][0])
    if refuses == "Python":
        found = client.share(place)
        assert found.refused and (found.outputs, found.flooding) == ({}, {})
    else:
        done = fresh.cpp("decrypt", "--share", "--answer", place, "--output", out)
        assert done.returncode == 3 and "these keys refused 1 answers" in done.stderr
        assert not out.exists()
    assert "why: the answer was refused before" in both_refuse(fresh, place)
    assert [entry["event"] for entry in fresh.ledger()] == ["query", "answer", "refused"]


def test_shared_numbers_are_checked(fresh: Exchange, tmp_path: Path) -> None:
    """The options of the C++ client; the first refusal is that of ``atlasc decrypt``, too."""
    answer = answered(fresh, tmp_path / "answer")
    words = ("decrypt", "--answer", answer, "--output", tmp_path / "out")
    for options, said in (
        (("--share", "--unchecked"), "--share and --unchecked exclude each other"),
        (("--bits", "40"), "--bits is for --share alone"),
        (("--share", "--shares", "-1"), "the option --shares is no whole number"),
        (("--share", "--bits", "1e3"), "the option --bits is no whole number"),
        (("--share", "--bits", "9" * 10), "the option --bits is no whole number"),
    ):
        done = fresh.cpp(*words, *options)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    arguments = ("decrypt", fresh.tiny.bundle, "--keys", fresh.keys, "--answer", answer)
    python = CliRunner().invoke(app, [*map(str, arguments), "--share", "--unchecked"])
    assert (python.exit_code, python.stderr) == (
        2,
        fresh.cpp(*words, "--share", "--unchecked").stderr,
    )
    assert [entry["event"] for entry in fresh.ledger()] == ["query"]


# --- any client, any server


@pytest.mark.parametrize("decrypts", ["Python", "C++"])
@pytest.mark.parametrize("executes", ["Python", "C++"])
@pytest.mark.parametrize("encrypts", ["Python", "C++"])
def test_queries_and_answers_pass_between_both_languages(
    exchange: Exchange, tmp_path: Path, encrypts: str, executes: str, decrypts: str
) -> None:
    """One key pair, one ledger: whoever encrypts, whoever executes, whoever decrypts."""
    query, answer, out = (tmp_path / name for name in ("query", "answer", "out.safetensors"))
    client = Client(exchange.bundle, exchange.keys)
    before = len(exchange.ledger()) if (exchange.keys / "client" / LEDGER).exists() else 0
    if encrypts == "Python":
        client.query({"pixel_values": exchange.images}).save(query)
    else:
        save_inputs(tmp_path / "in", exchange.bundle.client, {"pixel_values": exchange.images})
        done = exchange.cpp("encrypt", "--input", tmp_path / "in", "--output", query)
        assert done.returncode == 0, done.stderr
    if executes == "Python":
        server = Server(exchange.bundle, exchange.keys)
        answer.write_bytes(server.execute(query.read_bytes()))
    else:
        command = [exchange.project / "build/server", "--query", query, "--output", answer]
        command += ["--keys", exchange.keys / "server/evaluation.key"]
        command += ["--program", exchange.project / "program.safetensors"]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
    if decrypts == "Python":
        found = client.decrypt(answer).outputs[NAME]
    else:
        done = exchange.cpp("decrypt", "--answer", answer, "--output", out)
        assert done.returncode == 0, done.stderr
        found = load_file(out)[NAME]
    expected = simulate(
        exchange.bundle.client, exchange.bundle.poly, {"pixel_values": exchange.images}
    )[NAME]
    assert np.abs(found - expected).max() < 1e-4
    asked, answered = exchange.ledger()[before:]
    assert (asked["event"], answered["event"]) == ("query", "answer")
    assert asked["query"] == answered["query"]
    # The other client knows the answer, and takes no second one.
    exchange.cpp("decrypt", "--answer", answer, "--output", tmp_path / "again")
    client.decrypt(answer)
    assert len(exchange.ledger()) == before + 2
