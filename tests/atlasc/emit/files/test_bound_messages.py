"""What the C++ readers take: these weights, these keys, this query, the one answer to it."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpp_build import ROOT
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from atlasc.targets.sim import NOTE
from tests.atlasc.emit.cpp import reseal
from tests.atlasc.emit.probe import Bench
from tests.atlasc.remote.hostile import RAW
from tests.atlasc.remote.test_hostile_answers import forged

Change = Callable[[dict[str, Any], dict[str, bytes]], None]
SLOTS = 32 + len(NOTE) + 4
"""Bytes of a simulated ciphertext before its slots: the identity of the key, the
note, the level."""


def facts(**changed: str) -> Change:
    return lambda header, data: header["__metadata__"].update(changed)


def arrays(**changed: bytes) -> Change:
    return lambda header, data: data.update({k.replace("_", "/"): v for k, v in changed.items()})


def slots(path: Path, row: int, value: float) -> None:
    """Change a number of an answer: layout [d:2 b:1 t:1]."""

    def change(header: dict[str, Any], data: dict[str, bytes]) -> None:
        numbers = np.frombuffer(data["y/0"][SLOTS:], np.complex128).copy()
        numbers[2 * row] = value
        data["y/0"] = data["y/0"][:SLOTS] + numbers.tobytes()

    reseal(path, change)


# ------------------------------------------------------------------------------ weights and keys


@pytest.mark.parametrize("damage", ["exponent", "shape", "type", "more", "fewer"])
def test_other_weights_are_refused_before_any_key(bench: Bench, damage: str) -> None:
    path, said = bench.folder / "program", "does not have the weights of this program"
    found = load_file(path)
    with safe_open(path, "np") as file:
        facts = file.metadata()
    if damage == "exponent":
        found["weight"].view(np.uint8)[0, 7] ^= 0x10
    elif damage == "shape":
        found["weight"] = found["weight"].reshape(2, 8)
    elif damage == "type":
        found["weight"] = found["weight"].view(np.int64)
    elif damage == "more":
        found["another"] = found["bias"]
    else:
        del found["bias"]
        said = "call 0 is of the array 'bias', which is not there"
    save_file(found, path, facts)
    assert said in bench.refused(bench.execute(output="new", keys="in"))


@pytest.mark.parametrize("name", ["evaluation.key", "secret.key"])
def test_changed_keys_are_refused(bench: Bench, name: str) -> None:
    path = bench.folder / "keys" / name
    content = path.read_bytes()
    command = bench.execute(output="new") if name == "evaluation.key" else bench.decrypt()
    for position in (60, len(content) - 40, len(content) - 1):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        assert "is damaged" in bench.refused(command)


@pytest.mark.parametrize("value", [float("nan"), -1.0, 1e300, 0.5])
def test_forged_rotation_keys_are_refused(bench: Bench, value: float) -> None:
    key = bench.folder / "keys" / "evaluation.key"
    reseal(key, arrays(rotations=struct.pack("<30d", value, *[1.0] * 29)))
    assert "a rotation key is none" in bench.refused(bench.execute(output="new"))


def test_a_record_that_does_not_fit_is_refused(bench: Bench) -> None:
    """Digests keep other records out; whoever finds a way in gets a message."""
    whole = load_file(bench.folder / "program")
    code = whole["record/code"].view("<i4")
    assert bench.probe("record", "program").returncode == 0

    def said(name: str, **changed: np.ndarray) -> bytes:
        arrays = {n.replace("record_", "record/"): a for n, a in changed.items()}
        save_file(whole | arrays, bench.folder / name)
        done = bench.probe("record", name)
        assert done.returncode == 2, done.stderr
        return bytes(done.stderr)

    for position in range(len(code)):
        for number in (-2, 2**30):
            changed = code.copy()
            changed[position] = number
            name = f"{position}.{number}"
            save_file(whole | {"record/code": changed.view(np.uint8)}, bench.folder / name)
            done = bench.probe("record", name)
            assert done.returncode in (0, 2), done.stderr  # some rotations are as good as others
            assert done.returncode == 0 or b"record" in done.stderr
        assert b"cannot be read" in said(f"{position}", record_code=code[:position].view(np.uint8))
    assert b"fewer elements" in said("short", weight=np.ones((3, 4)))
    assert b"no function" in said("other", record_names=np.frombuffer(b"other_1", np.uint8))


# -------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize("count", ["0", "-1", "1000000000", "3", "true", "02", " 2", "2.0", ""])
def test_counts_are_those_of_a_batch(bench: Bench, count: str) -> None:
    for name, command in (("query", bench.execute(output="new")), ("answer", bench.decrypt())):
        reseal(bench.folder / name, facts(count=count))
        assert "its count is not 1 to 2" in bench.refused(command)


def test_arrays_are_exactly_those_of_the_interface(bench: Bench) -> None:
    for name, command in (("query", bench.execute(output="new")), ("answer", bench.decrypt())):
        whole = (bench.folder / name).read_bytes()
        part = "x/0" if name == "query" else "y/0"
        for change, words in {
            arrays(**{"z/9": b"0" * 8}): "arrays that the program does not know",
            arrays(**{part: b"0" * 8}): "a ciphertext is damaged",
            arrays(**{part: bytes(10**6)}): f"its array {part} is missing, or of another size",
            lambda header, data, part=part: data.pop(part): f"its array {part} is missing",
        }.items():
            reseal(bench.folder / name, change)
            assert words in bench.refused(command)
            (bench.folder / name).write_bytes(whole)


@pytest.mark.parametrize("value", [0.5, -1.0, float("nan"), float("inf")])
def test_masks_are_masks(bench: Bench, value: float) -> None:
    changed = {"attention_mask": struct.pack("<4d", 1.0, value, 1.0, 1.0)}
    reseal(bench.folder / "query", lambda header, data: data.update(changed))
    assert "another number than 0 and 1" in bench.refused(bench.execute(output="new"))
    tensors = load_file(bench.folder / "in")
    tensors["attention_mask"][1, 0] = value
    save_file(tensors, bench.folder / "in")
    message = bench.refused(bench.encrypt(output="new"))
    assert "input 1 is not encrypted" in message
    assert "its attention_mask is no mask: it has another number than 0 and 1" in message


@pytest.mark.parametrize("name", RAW)
def test_what_is_no_answer_is_refused(bench: Bench, name: str) -> None:
    """What a hostile service gives to the client in Python, given to this one."""
    (bench.folder / "answer").write_bytes(RAW[name])
    ledger = (bench.folder / "keys" / "ledger.jsonl").read_bytes()
    message = bench.refused(bench.decrypt())
    assert "answer" in message and "\x1b" not in message
    assert (bench.folder / "keys" / "ledger.jsonl").read_bytes() == ledger


def test_each_fact_of_an_answer(bench: Bench) -> None:
    """As tests/atlasc/remote/test_hostile_answers.py, of the client in Python."""
    path, ledger = bench.folder / "answer", bench.folder / "keys" / "ledger.jsonl"
    answer, before = path.read_bytes(), ledger.read_bytes()
    for what, content in forged(answer):
        path.write_bytes(content)
        assert "\x1b" not in bench.refused(bench.decrypt()), what
        assert ledger.read_bytes() == before, what


def test_a_query_is_no_answer(bench: Bench) -> None:
    (bench.folder / "answer").write_bytes((bench.folder / "query").read_bytes())
    assert "is no answer" in bench.refused(bench.decrypt())


def test_the_client_speaks_with_nobody() -> None:
    """It sends nothing to a service, whatever it reads: what leaves is the files that it writes."""
    texts = [path.read_text() for path in (ROOT / "runtime_cuda").rglob("*.[ch]pp")]
    assert len(texts) > 50
    for text in texts:
        assert not re.search(r"sys/socket|netdb|netinet|\b(socket|connect|popen|system)\(", text)


def test_the_ciphertext_of_a_query_is_no_answer(bench: Bench) -> None:
    sent = {}
    reseal(bench.folder / "query", lambda header, data: sent.update(data))
    reseal(bench.folder / "answer", arrays(**{"y/0": sent["x/0"]}))
    assert "it is at level 3, the program wants level 2" in bench.refused(bench.decrypt())


@pytest.mark.parametrize("other", ["1", "99"])
def test_another_format_is_refused(bench: Bench, other: str) -> None:
    reseal(bench.folder / "query", facts(format=other))
    message = bench.refused(bench.execute(output="new"))
    assert f"has format {other}" in message
    assert "this version reads format 2 or 3" in message


def test_the_former_format_is_read(bench: Bench) -> None:
    reseal(bench.folder / "query", facts(format="2"))
    bench.run(bench.execute(output="new"))
    assert (bench.folder / "new").read_bytes() == (bench.folder / "answer").read_bytes()
    reseal(bench.folder / "answer", facts(format="2"))
    bench.run(bench.decrypt())


def test_answers_to_other_queries_are_refused(bench: Bench) -> None:
    reseal(bench.folder / "answer", facts(query="f" * 32))
    assert "none of the queries that this key encrypted" in bench.refused(bench.decrypt())
    reseal(bench.folder / "answer", facts(query="../" + "f" * 29))
    assert "does not say which query" in bench.refused(bench.decrypt())


def test_an_answer_has_the_count_of_its_query(bench: Bench) -> None:
    reseal(bench.folder / "answer", facts(count="1"))
    message = bench.refused(bench.decrypt())
    assert "the query was for 2 inputs of the program aaaaaaaa, the answer says 1" in message


# ---------------------------------------------------------------------------------------- ranges


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_inputs_that_are_not_finite_are_refused(bench: Bench, value: float) -> None:
    tensors = load_file(bench.folder / "in")
    tensors["x"][1, 0, 2] = value
    save_file(tensors, bench.folder / "in")
    message = bench.refused(bench.encrypt(output="new"))
    assert "input 1 is not encrypted\n  where: in\n" in message
    assert "why: what is encrypted of it is not finite\n" in message


def test_far_larger_inputs_are_refused(bench: Bench) -> None:
    tensors = load_file(bench.folder / "in")
    tensors["x"][1] *= 60
    save_file(tensors, bench.folder / "in")
    message = bench.refused(bench.encrypt(output="new"))
    assert "input 1 is not encrypted\n  where: in\n" in message
    assert re.search("why: it reaches [0-9.]+ times what calibration saw\n", message)
    bench.run([*bench.encrypt(output="new"), "--unchecked"])


def test_an_answer_is_read_once(bench: Bench) -> None:
    """All of it, and no more than an answer has: what the ledger notes is what is decrypted."""
    with (bench.folder / "answer").open("ab") as file:
        file.truncate(1 << 40)
    assert "the file has 1099511627776 bytes, more than" in bench.refused(bench.decrypt())


@pytest.mark.parametrize("value", [8.5, -1e8, float("nan")])
def test_answers_outside_the_calibration_are_not_shown(bench: Bench, value: float) -> None:
    slots(bench.folder / "answer", 1, value)
    if value != value:  # the simulation refuses it as an engine that has lost its modulus
        bench.refused(bench.decrypt())
        return
    message = bench.refused(bench.decrypt(), 3)
    assert "outside the range of the calibration" in message
    assert "why: 13% of row 1; these keys refused 1 answers" in message
    bench.run(bench.decrypt("--unchecked"))
    assert load_file(bench.folder / "out")["y"][1].ravel()[0] == value


def test_answers_up_to_four_times_the_calibration_are_shown(bench: Bench) -> None:
    slots(bench.folder / "answer", 1, 8.0)
    bench.run(bench.decrypt())


@pytest.mark.parametrize("name", ["ids", "x", "position"])
def test_only_a_mask_may_leave_in_the_clear(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A program that asks for more gets neither keys nor a query."""
    monkeypatch.setenv("ATLASC_TEST_PUBLIC", name)
    (bench.folder / "interface").unlink()
    bench.run([bench.program, "interface", "interface"])
    save_file({"x": np.ones((2, 2, 4)), name: np.ones((2, 2))}, bench.folder / "in")
    said = "the program asks for an input in the clear"
    if name == "x":  # which is encrypted: its file is refused before it can ask
        said = "two inputs have the same name"
    for command in (bench.keygen("other keys"), bench.encrypt(output="new")):
        assert said in bench.refused(command)
    assert not (bench.folder / "other keys").exists() and not (bench.folder / "new").exists()


def test_inputs_are_no_larger_than_the_program_has_them(bench: Bench) -> None:
    """Refused by their shape: the terabyte is never read."""
    shape, size = [2**38, 1, 4], 2**43
    header = {
        "attention_mask": {"dtype": "F64", "shape": [2, 2], "data_offsets": [0, 32]},
        "x": {"dtype": "F64", "shape": shape, "data_offsets": [32, 32 + size]},
    }
    text = json.dumps(header).encode()
    with (bench.folder / "in").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 32 + size)
    assert "has not the shape of the program" in bench.refused(bench.encrypt(output="new"))


# --------------------------------------------------------------------------------------- headers


def test_headers_take_little_memory(bench: Bench) -> None:
    path = bench.folder / "large"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 1 << 27))
        file.truncate((1 << 27) + 8)
    assert b"its header has 134217728 bytes" in bench.probe("header", path).stderr
    text = '{"a":{"dtype":"U8","shape":[' + "1," * 500_000 + '1],"data_offsets":[0,1]}}'
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + b"0")
    done = bench.probe("header", path)
    assert b"too many values" in done.stderr
    many = {
        f"array {n}": {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]}
        for n in range(10_000)
    }
    text = json.dumps(many)
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + b"0" * 10_000)
    *names, memory = bench.probe("header", path).stdout.split(b"\n")[:-1]
    assert len(names) == 10_000
    assert int(memory) < 200


def test_sha256_is_that_of_the_standard(bench: Bench) -> None:
    texts = [b"", b"abc", b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", b"a" * 10**5]
    texts += [bytes(range(200))[:length] for length in (55, 56, 57, 63, 64, 65, 119, 120, 128, 199)]
    for text in texts:
        for step, portable in ((7, 0), (1000, 0), (7, 1), (1000, 1)):
            found = bench.probe("sha256", step, portable, stdin=text).stdout.decode().strip()
            assert found == hashlib.sha256(text).hexdigest()
