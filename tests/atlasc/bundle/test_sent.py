"""Bytes that are told before anything is made are those of the files that are made then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.bundle.folder import load_bundle
from atlasc.bundle.sent import MANY, Sent, sent_of, size_text
from atlasc.program.key_plan import KeyPlan
from atlasc.runtime.native import load_library
from atlasc.targets import find_target
from atlasc.targets.base import SentBytes, no_progress
from atlasc.targets.ckks.engine import KeyedTarget
from atlasc.targets.cpu.parameters import CpuParameters
from tests.atlasc.cli.command import run
from tests.atlasc.client.interfaces import rows_of, with_rows

PLAN = KeyPlan({1: 3, 10: 2, 1000: 0}, 3, None)


@pytest.mark.parametrize("name", ["cpu", "sim"])
def test_files_have_the_bytes_that_were_told(name: str, tiny: Tiny, tmp_path: Path) -> None:
    """Several ciphertexts at several levels, and a mask."""
    target, parameters = find_target(name), CpuParameters.choose(3, 2**12)
    assert isinstance(target, KeyedTarget)
    base = load_bundle(tiny.bundle).interface
    (one,), (out,) = rows_of(base, "inputs"), rows_of(base, "outputs")
    interface = with_rows(
        base,
        inputs=[{**one, "level": 3}, {**one, "name": "more", "level": 1}],
        publics=[{"name": "attention_mask", "shape": [2, 4]}],
        outputs=[{**out, "level": 0}],
    )
    for role in ("client", "server"):
        (tmp_path / role).mkdir()
    target.generate_keys(parameters, PLAN, tmp_path, no_progress)
    engine: Any = target.role_engine("client", tmp_path / "client", parameters)

    def message(kind: str, rows: Any, count: int, fresh: bool) -> int:
        values = {}
        for row in rows:
            x = engine.encrypt(np.zeros(engine.slots), row.level)
            x = x if fresh else engine.add_plain(x, 0.0)
            values[row.name] = [engine.serialize(x)] * row.ciphertexts
        publics = {"attention_mask": np.ones((2, 4))} if kind == "query" else {}
        made = load_library().Message(
            kind=kind, engine=name, query="0" * 32, count=count, values=values, publics=publics
        )
        return len(made.sealed(interface))

    for count in (1, 2):
        told = target.sent_bytes(parameters, PLAN, interface, count)
        assert told is not None
        assert told.keys == (tmp_path / "server" / "evaluation.key").stat().st_size
        assert told.query == message("query", interface.inputs, count, fresh=True)
        assert told.answer == message("answer", interface.outputs, count, fresh=False)


def test_a_bundle_tells_what_its_client_sends(tiny: Tiny, tmp_path: Path) -> None:
    """As ``inspect`` and ``keygen`` do."""
    bundle = load_bundle(tiny.bundle)
    found = sent_of(bundle)
    assert found is not None and found.batch == bundle.batch
    made = json.loads(run("keygen", tiny.bundle, "--keys", tmp_path / "keys", "--json").out)["sent"]
    assert made == found.to_dict()
    keys = tmp_path / "keys" / "server" / "evaluation.key"
    assert found.bytes.keys == keys.stat().st_size
    with np.load(tiny.data) as file:
        query = atlasc.Client(tiny.bundle, tmp_path / "keys").encrypt(file["pixel_values"][:2])
    assert found.bytes.query == len(query)
    answer = atlasc.Server(tiny.bundle, tmp_path / "keys").execute(query)
    assert found.bytes.answer == len(answer)
    words = ("inspect", tiny.bundle, "--json", "--upload", "40")
    seen = json.loads(run(*words).out)["sent"]
    assert seen["query_bytes"] == len(query) and seen["upload_mbit"] == 40
    assert seen["query_upload_seconds"] == pytest.approx(len(query) / 5e6)
    of_cpu = json.loads(run(*words[:3], "--target", "cpu").out)["sent"]
    assert of_cpu["key_bytes"] > 1000 * seen["key_bytes"]  # keys of the simulation are none
    told = run("inspect", tiny.bundle)
    assert f"a query of 2 inputs {size_text(len(query))}" in told.out + told.err


def test_many_answers() -> None:
    sent = Sent(SentBytes(10**9, 25 * 10**6, 10**5), 16, 2.0)
    told = sent.to_dict()
    assert MANY == 1000 and told["answers_queries"] == 63
    assert told["answers_query_bytes"] == 63 * 25 * 10**6
    assert told["answers_answer_bytes"] == 63 * 10**5
    assert told["answers_seconds"] == 126.0
    assert told["key_upload_seconds"] == 400.0 and told["query_upload_seconds"] == 10.0
    text = str(sent)
    for part in ("1 GB", "400 s at 20 Mbit/s", "a query of 16 inputs 25 MB (10 s)", "100 kB"):
        assert part in text
    assert Sent(sent.bytes, 1).to_dict()["answers_seconds"] is None


@pytest.mark.parametrize("name", ["cuda", "phantom"])
def test_a_gpu_is_not_needed_to_tell(name: str, tiny: Tiny) -> None:
    """Its files differ from those of the processors in their parameters and in the name alone."""
    target = find_target(name)
    parameters = target.parameters.choose(3, 2**12)
    (one,) = rows_of(load_bundle(tiny.bundle).interface, "inputs")
    interface = with_rows(load_bundle(tiny.bundle).interface, inputs=[{**one, "level": 3}])
    found = target.sent_bytes(parameters, PLAN, interface)
    assert found is not None
    bits = sum(parameters.moduli.primes[:4]) * parameters.ring_degree
    assert 0 <= found.query - interface.inputs[0].ciphertexts * bits // 8 < 2000
