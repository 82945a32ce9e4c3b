"""The ledger of the C++ client: the queries of a key, the answer to each, and refused answers."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from cpp_build import SECONDS
from safetensors.numpy import load_file, save_file

from atlasc.bundle.ledger import LEDGER
from tests.atlasc.emit.cpp import reseal
from tests.atlasc.emit.files.test_bound_messages import facts, slots
from tests.atlasc.emit.probe import Bench

SIMULATION = "SIMULATION: this engine encrypts nothing; use it for rehearsals only\n"


def ledger(bench: Bench) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (bench.folder / "keys" / LEDGER).read_text().splitlines()]


def test_one_answer_to_each_query(bench: Bench) -> None:
    folder = bench.folder
    bench.run(bench.decrypt())
    bench.run(bench.decrypt(output="again"))
    assert (folder / "again").read_bytes() == (folder / "out").read_bytes()
    query, answered = ledger(bench)
    digest = hashlib.sha256((folder / "answer").read_bytes()).hexdigest()
    same = {name: query[name] for name in ("query", "program", "count")}
    assert query == {**same, "event": "query", "count": 2, "program": "a" * 64, "doubt": ""}
    assert answered == {**same, "event": "answer", "answer": digest}
    slots(folder / "answer", 0, 0.25)
    assert "was answered before, and differently" in bench.refused(bench.decrypt(output="new"))


def test_the_digest_is_that_of_what_was_decrypted(bench: Bench) -> None:
    """The file changes between the decryption's read and the note: it is read once."""
    first = (bench.folder / "answer").read_bytes()
    with (bench.folder / "keys" / LEDGER).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        words = [str(word) for word in bench.decrypt()]
        process = subprocess.Popen(words, cwd=bench.folder, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + SECONDS
        while not re.search(rf"->.* {process.pid} ", Path("/proc/locks").read_text()):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        slots(bench.folder / "answer", 0, 0.25)
    assert process.wait() == 0, process.communicate()
    assert ledger(bench)[-1]["answer"] == hashlib.sha256(first).hexdigest()
    changed = load_file(bench.folder / "out")["y"].ravel()[0]
    assert changed != 0.25


def test_a_line_that_was_cut_off_is_dropped(bench: Bench) -> None:
    path = bench.folder / "keys" / LEDGER
    text = path.read_text()
    path.write_text(text + '{"event": "query"')
    bench.run(bench.decrypt())
    assert path.read_text().startswith(text + '{"event": "answer"')
    for damaged in (
        text + "{}\n",
        text + text.replace('"query": "', '"query": "x'),
        "nothing\n",
        text.replace(": 2", ": 0"),
        text.replace(": 2", ": 2.5"),
        text.replace('"doubt"', '"other"'),
    ):
        path.write_text(damaged)
        assert "ledger.jsonl is damaged" in bench.refused(bench.decrypt(output="new"))


def test_large_inputs_are_said_and_remembered(bench: Bench) -> None:
    assert bench.run(bench.encrypt(output="usual")) == SIMULATION
    assert ledger(bench)[-1]["doubt"] == ""
    tensors = load_file(bench.folder / "in")
    tensors["x"][1] *= 3
    save_file(tensors, bench.folder / "in")
    said = bench.run(bench.encrypt(output="large")).replace(SIMULATION, "")
    doubt = "input 1: it reaches 1.31 times what calibration saw"
    assert said == f"warning: in: {doubt}: the answers may be wrong\n"
    assert ledger(bench)[-1]["doubt"] == doubt
    # What atlasc embed knows of the inputs goes before.
    save_file(tensors, bench.folder / "in", {"doubt": 'it "leaves" a range'})
    bench.run(bench.encrypt(output="told"))
    assert ledger(bench)[-1]["doubt"] == 'it "leaves" a range'


def test_refused_answers_use_a_key_up(bench: Bench) -> None:
    """One bit an answer is what a server that sends false ones may learn."""
    slots(bench.folder / "answer", 1, 8.5)
    for number in range(16):
        bench.run(bench.encrypt(output=f"query{number}"))
        name = ledger(bench)[-1]["query"]
        reseal(bench.folder / "answer", facts(query=name))
        for _ in range(2):  # the same answer again tells nothing new
            message = bench.refused(bench.decrypt(), 3)
            assert f"these keys refused {number + 1} answers; after 16" in message
        assert ledger(bench)[-1]["event"] == "refused"
    shutil.copyfile(bench.folder / "answer", bench.folder / "fresh")
    reseal(bench.folder / "fresh", facts(query=ledger(bench)[0]["query"]))
    for command in (bench.encrypt(output="new"), bench.decrypt(answer="fresh")):
        message = bench.refused(command)
        assert "these keys are used up" in message and "make new keys" in message
    bench.run(bench.decrypt("--unchecked"))  # what was read before may be read again


def test_a_key_shares_what_its_noise_was_sized_for(bench: Bench) -> None:
    bench.run(bench.decrypt())
    exact = load_file(bench.folder / "out")["y"]
    for number in (1, 2):
        said = bench.run(bench.decrypt("--share", "--shares", "2", output=f"shared{number}"))
        # sqrt(12 tau n) 2^15 1e-9 of 16 numbers is 6.4e-4.
        assert "note: y: 4 digits are left and may be passed on, at 30 bits\n" in said
        assert f"noise of 0.00064 hides the error of encryption; answer {number} of 2" in said
        off = load_file(bench.folder / f"shared{number}")["y"] - exact
        assert 1e-4 < np.abs(off).max() < 6e-3
    message = bench.refused(bench.decrypt("--share", "--shares", "2", output="new"))
    assert "these keys have shared as many answers as they may" in message
    assert [line["event"] for line in ledger(bench)] == ["query", "answer", "share", "share"]
