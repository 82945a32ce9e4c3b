"""Each field of whatever a service or a bundle may say, one by one: the client refuses it, or sends
exactly what it sends to an honest service.

The fields are those of the schemas and of the files themselves. A new field fails here until
``LIES`` has what a hostile service would say in it.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError
from tiny_model import Tiny

import atlasc
from atlasc import remote
from atlasc.bundle.manifest import Manifest, ModelFacts
from atlasc.ir.errors import AtlasError
from atlasc.remote import wire
from atlasc.remote.link import Link
from tests.atlasc.remote.hostile import Hostile, forged, hostile
from tests.fuzz.readers.edge.wire import KEY, PROGRAM, SAMPLES
from tests.fuzz.sites import File

pytestmark = pytest.mark.filterwarnings("ignore:the target sim is a simulation")
JUNK = "is (damaged|no answer)"
"""How an honest service ends here: what it computed is none."""
PIXELS = np.zeros((1, 1, 8, 8), np.float32)
ESCAPE, OTHER, HUGE = "\x1b[2J", "f" * 64, 2**53
NOT_THAT, OTHERS = "not that of the program", "bundle format None"
Lies = list[tuple[Any, str]]
"""Values that a schema takes, and what the client says: ``JUNK`` where a lie changes nothing."""
LIES: dict[type[BaseModel], dict[str, Lies]] = {
    wire.Config: {
        "atlasc": [(ESCAPE, JUNK)],
        "chunk_bytes": [(2**16, JUNK), (HUGE, JUNK)],
        "programs": [([], "answers several models|does not answer"), ([PROGRAM], OTHERS)],
        "keys": [([{**KEY, "ready": True}], JUNK), ([KEY] * 1000, JUNK)],
        "queued": [(HUGE, JUNK)],
        "wait_seconds": [(1e300, JUNK)],
    },
    wire.ProgramFacts: {
        "model": [("../../keys", OTHERS), (ESCAPE, OTHERS), ("", OTHERS)],
        "program": [(OTHER, NOT_THAT)],
        "bundle": [(OTHER, NOT_THAT)],
        "target": [("cpu", "another target"), (ESCAPE, "another target")],
        "batch": [(3, "another batch"), (0, "another batch"), (HUGE, "another batch")],
        "sequence_length": [(6, "another sequence_length"), (HUGE, "another sequence_length")],
        "configuration": [(OTHER, "disagree on the keys")],
        "query_bytes": [(0, JUNK), (HUGE, JUNK)],
        "answer_bytes": [(0, JUNK), (HUGE, JUNK)],
        "key_bytes": [(0, JUNK), (HUGE, JUNK)],
        "seconds": [(None, JUNK), (0.0, JUNK), (1e300, JUNK)],
    },
    wire.KeyStatus: {
        "id": [(OTHER, JUNK)],
        "configuration": [(OTHER, JUNK)],
        "size": [(0, JUNK), (HUGE, JUNK)],
        "received": [(0, JUNK), (HUGE, JUNK)],
        "ready": [(True, JUNK)],
    },
    wire.JobStatus: {
        "id": [("../../keys", JUNK), (ESCAPE, JUNK), ("", "not understood")],
        "state": [("failed", "has no answer: failed"), ("cancelled", "has no answer")],
        "program": [(OTHER, JUNK)],
        "query": [("", JUNK), (ESCAPE, JUNK)],
        "done": [(0, JUNK), (HUGE, JUNK)],
        "ahead": [(HUGE, JUNK)],
        "wait_seconds": [(1e300, JUNK)],
        "answer_bytes": [(0, JUNK), (HUGE, JUNK)],
        "fault": [({"error": ESCAPE}, JUNK)],
    },
    wire.Fault: {
        "error": [(ESCAPE, r"\\x1b"), ("x" * 100_000, "xxx")],
        "where": [(ESCAPE, "no"), ("/etc/passwd", "no")],  # of its machine, and not shown
        "why": [(ESCAPE, r"\\x1b"), ("x" * 100_000, "xxx")],
        "remedy": [(ESCAPE, r"\\x1b"), ("x" * 100_000, "xxx")],
    },
    Manifest: {
        "format": [(2, "bundle format 2"), ("3", "bundle format '3'")],
        "atlasc": [(ESCAPE, JUNK)],
        "name": [(ESCAPE, "name"), ("n" * 65, "name")],
        "model": [({"name": ESCAPE, "kind": ESCAPE}, JUNK)],
        "program": [(OTHER, JUNK)],
        "target": [("count", "no client and no server"), ("none", "no target")],
        "parameters": [({}, "parameters"), ({"log_degree": 2**40}, "parameters")],
        "security_bits": [(999, "says 999 bits"), (0, "says 0 bits")],
        "security": [({ESCAPE: ESCAPE}, JUNK)],
        "insecure": [(True, "bits of security")],
        "batch": [(1, "inputs a run"), (2**20, "inputs a run")],
        "sequence_length": [(1, JUNK), (2**24, JUNK)],
        "settings": [({ESCAPE: ESCAPE}, JUNK)],
        "data": [({ESCAPE: ESCAPE}, JUNK)],
        "calibration": [({"ranges": ESCAPE}, JUNK)],
        "costs": [({"per_layer": []}, JUNK)],
        "files": [({}, "is damaged"), ({"client/../../x": OTHER}, "is damaged")],
    },
    ModelFacts: {
        "name": [(ESCAPE, JUNK), ("x" * 10**6, JUNK)],
        "kind": [(ESCAPE, JUNK)],
        "notes": [([ESCAPE] * 1000, JUNK)],
    },
}  # fmt: skip
ODD: tuple[Any, ...] = (None, [], {}, -1, 0.5, True, ESCAPE, 10**30, "9" * 5000, [[]], "\ud800")
"""Values of any kind; most of them are of another one than a field's."""


def asked(service: Hostile, folder: Path) -> None:
    with atlasc.connect(
        service.url, token="x", folder=folder, allow_simulation=True, note=lambda *_: None
    ) as connection:
        connection.query(PIXELS)


def cases(*schemas: type[BaseModel]) -> list[Any]:
    return [
        pytest.param(schema, name, number, id=f"{schema.__name__}.{name}-{number}")
        for schema in schemas
        for name, lies in LIES[schema].items()
        for number in range(len(lies))
    ]


def sent(service: Hostile) -> list[tuple[str, str, int]]:
    """What is sent, without the names of keys and jobs."""
    found = [(how, re.sub("^(/[a-z]+).*", r"\1", path), body) for how, path, body in service.sent]
    return [(how, path, len(body)) for how, path, body in found if how != "DELETE"]


@pytest.fixture(scope="module")
def honest(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, int]]:
    """What is sent to an honest service."""
    with hostile(tiny.bundle) as service:
        with pytest.raises(AtlasError, match=JUNK):
            asked(service, tmp_path_factory.mktemp("honest") / "folder")
        found = sent(service)
    assert [(how, path) for how, path, _ in found] == [
        ("POST", "/keys"), ("PUT", "/keys"), ("POST", "/jobs"),
    ]  # fmt: skip
    return found


def judge(
    service: Hostile, folder: Path, words: str, honest: list[tuple[str, str, int]], kept: str
) -> None:
    """The client says the words; with ``JUNK`` it has sent no more than to an honest service, and
    with other words nothing but what came before the lie (``kept``)."""
    with pytest.raises(AtlasError, match=words) as caught:
        asked(service, folder)
    assert "\x1b" not in caught.value.render()
    found = sent(service)
    if words == JUNK:
        assert {*found} <= {*honest} | {(how, path, n) for how, path, n in found if how == "PUT"}
        assert sum(n for how, _, n in found if how == "PUT") <= 12 * honest[1][2]
    else:
        assert [path for _, path, _ in found if path not in kept] == []


@pytest.mark.parametrize(("schema", "name", "number"), cases(wire.Config, wire.ProgramFacts))
def test_what_it_says_of_itself(
    tiny: Tiny, tmp_path: Path, honest: Any, schema: type[BaseModel], name: str, number: int
) -> None:
    value, words = LIES[schema][name][number]
    with hostile(tiny.bundle) as service:
        config = service.config
        (config if schema is wire.Config else config["programs"][0])[name] = value
        service.lies[("GET", "/config")] = (200, config)
        judge(service, tmp_path / "folder", words, honest, "")


@pytest.mark.parametrize(("schema", "name", "number"), cases(wire.KeyStatus))
def test_what_it_says_of_keys(
    tiny: Tiny, tmp_path: Path, honest: Any, schema: type[BaseModel], name: str, number: int
) -> None:
    value, words = LIES[schema][name][number]
    with hostile(tiny.bundle) as service:

        def say(handler: Any) -> None:
            handler.say(200, {**service.key(), name: value})

        service.lies[("POST", "/keys")] = say
        judge(service, tmp_path / "folder", words, honest, "/keys")


@pytest.mark.parametrize(("schema", "name", "number"), cases(wire.JobStatus))
def test_what_it_says_of_jobs(
    tiny: Tiny, tmp_path: Path, honest: Any, schema: type[BaseModel], name: str, number: int
) -> None:
    value, words = LIES[schema][name][number]
    with hostile(tiny.bundle) as service:
        service.lies[("POST", "/jobs")] = (200, service.job(**{name: value}))
        judge(service, tmp_path / "folder", words, honest, "/keys /jobs")


@pytest.mark.parametrize(("schema", "name", "number"), cases(wire.Fault))
def test_what_it_says_of_faults(
    tiny: Tiny, tmp_path: Path, honest: Any, schema: type[BaseModel], name: str, number: int
) -> None:
    value, words = LIES[schema][name][number]
    said = {"error": "no", "where": "", "why": "", "remedy": "", name: value}
    with hostile(tiny.bundle, {("GET", "/config"): (400, said)}) as service:
        judge(service, tmp_path / "folder", words, honest, "")


@pytest.mark.parametrize(("schema", "name", "number"), cases(Manifest, ModelFacts))
def test_what_a_manifest_says(
    tiny: Tiny, tmp_path: Path, honest: Any, schema: type[BaseModel], name: str, number: int
) -> None:
    value, words = LIES[schema][name][number]

    def edit(text: str) -> str:
        facts = json.loads(text)
        (facts if schema is Manifest else facts["model"])[name] = value
        return json.dumps(facts)

    bundle = forged(tiny.bundle, tmp_path / "bundle", {"manifest.json": edit})
    with hostile(bundle) as service:
        judge(service, tmp_path / "folder", words, honest, "")
    assert words == JUNK or not list((tmp_path / "folder").rglob("*.key"))


@pytest.mark.parametrize("name", SAMPLES)
def test_values_of_another_kind(tiny: Tiny, name: str) -> None:
    """Of each field, those inside of others too; whatever the schema does not take is refused."""
    schema, sample = SAMPLES[name]
    with hostile(tiny.bundle) as service:
        for place, field in places(sample):
            before, refusals = place[field], 0
            for value in ODD:
                place[field] = value
                text = json.dumps(sample)
                service.lies[("GET", "/config")] = (200, text.encode())
                try:
                    schema.model_validate_json(text)
                except ValidationError:
                    refusals += 1
                    with pytest.raises(AtlasError, match="is not understood"):
                        Link(service.url, "x").get("/config", schema)
            place[field] = before
            assert refusals >= 4, field
            del place[field]
            service.lies[("GET", "/config")] = (200, {**sample, "more": 1})
            with pytest.raises(AtlasError, match="is not understood"):
                Link(service.url, "x").get("/config", schema)
            place[field] = before


def places(tree: Any) -> list[tuple[dict[str, Any], str]]:
    """All objects and names of their members."""
    if isinstance(tree, list):
        return [one for part in tree for one in places(part)]
    if not isinstance(tree, dict):
        return []
    inner = [one for part in tree.values() for one in places(part)]
    return [*((tree, name) for name in tree), *inner]


def test_every_field_has_a_lie() -> None:
    for schema, lies in LIES.items():
        assert lies.keys() == schema.model_fields.keys(), schema.__name__
        assert all(lies.values())


def test_every_schema_of_a_service_is_here() -> None:
    """Those that ``atlasc.remote`` reads, and those inside of them."""
    schemas = {name: one for name, one in vars(wire).items() if is_schema(one)}
    read = set[str]()
    for path in Path(remote.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        found = File(str(path), tree, {*schemas}).openings(tree)
        read |= {what.partition(" ")[2] for _, what, _, _ in found if what.startswith("schema ")}
    wanted = {schemas[name.rpartition(".")[2]] for name in read}
    for one in tuple(wanted):
        inside = str([field.annotation for field in one.model_fields.values()])
        wanted |= {schema for name, schema in schemas.items() if f".{name}" in inside}
    assert wanted and wanted <= LIES.keys()


def is_schema(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseModel) and one.__module__ == wire.__name__
