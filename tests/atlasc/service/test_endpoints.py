"""Every endpoint over HTTP: who may call it, and what it says to what is wrong."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.service import endpoints, v2
from atlasc.service.programs import Served
from atlasc.service.store import Store
from atlasc.service.tokens import revoke_token
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import ROOT, Answer, Running, until

OPEN = {"/v2/health/live", "/v2/health/ready"}
"""Paths that need no token."""
ROUTES = sorted(
    (method, route.path)
    for router in (v2.router, endpoints.router)
    for route in router.routes
    for method in route.methods  # type: ignore[attr-defined]
)


@dataclass(frozen=True)
class Answered:
    """A service with keys and an answered job of the tenant acme.

    Attributes:
        token: of acme.
        key, job: of acme.
    """

    service: Running
    token: str
    key: str
    job: str


def digest(chunk: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(chunk).digest()).decode()}:"


def upload(service: Running, token: str, party: Party, served: Served) -> str:
    content = party.evaluation
    key = hashlib.sha256(content).hexdigest()
    new = {"configuration": served.configuration, "size": len(content), "sha256": key}
    assert service.call("POST", "/keys", token, json.dumps(new).encode()).status == 201
    done = service.call(
        "PUT", f"/keys/{key}?offset=0", token, content, Content_Digest=digest(content)
    )
    assert done.json["ready"], done.content
    return key


def wait(service: Running, token: str, job: str) -> str:
    def state() -> str:
        return str(service.call("GET", f"/jobs/{job}", token).json["state"])

    until(lambda: state() not in ("queued", "running"))
    return state()


@pytest.fixture(scope="module")
def answered(
    tiny: Tiny, party: Party, served: Served, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Answered]:
    service = Running(tmp_path_factory.mktemp("service") / "state", tiny.bundle, "--rate", 10_000)
    token = service.token("acme")
    key = upload(service, token, party, served)
    query = party.client.encrypt(party.pixels[:2])
    job = service.call("POST", "/jobs", token, query).json["id"]
    assert wait(service, token, job) == "done"
    yield Answered(service, token, key, job)
    service.kill()


def test_every_endpoint_refuses_strangers(answered: Answered, served: Served) -> None:
    service = answered.service
    revoked, expired = service.token("acme"), service.token("acme", days=0)
    store = Store(service.state)
    revoke_token(store, revoked)
    store.close()
    nothing = service.token("acme", "metrics")
    asks, keeps = service.token("acme", "infer"), service.token("acme", "keys")
    other = service.token("other")
    values = {"model": served.model, "version": served.program, "name": "manifest.json"}
    values |= {"key": answered.key, "job": answered.job}
    assert len(ROUTES) > 20
    for method, path in ROUTES:
        place = re.sub(r"\{(\w+)(:path)?\}", lambda found: values[found[1]], path)
        if method == "PUT":
            place += "?offset=0"
        if path in OPEN:
            assert service.call(method, place).status in (200, 503)
            continue
        for token in ("", "wrong", answered.token[:-1] + "x", revoked, expired):
            found = service.call(method, place, token)
            assert found.status == 401, (method, path, found.content)
            assert found.headers["www-authenticate"] == "Bearer"
        if path.startswith(("/keys", "/jobs")) or "infer" in path:
            assert service.call(method, place, nothing).status == 403, (method, path)
            wrong = asks if path.startswith("/keys") else keeps
            assert service.call(method, place, wrong).status == 403, (method, path)
        if "{key}" in path or "{job}" in path:
            body = b"x" if method == "PUT" else None
            found = service.call(method, place, other, body, Content_Digest=digest(b"x"))
            assert found.status == 404, (method, path, found.content)
    # Lists are the caller's own.
    assert service.call("GET", "/keys", other).json == []
    assert service.call("GET", "/jobs", other).json == []
    assert service.call("GET", "/config", other).json["keys"] == []
    # Nothing was harmed.
    assert service.call("GET", f"/keys/{answered.key}", answered.token).json["ready"]
    assert service.call("GET", f"/jobs/{answered.job}/answer", answered.token).status == 200


def test_another_tenants_keys_are_not_used(answered: Answered, party: Party) -> None:
    service, query = answered.service, party.client.encrypt(party.pixels[:2])
    other = service.token("other")
    found = service.call("POST", f"/jobs?keys={answered.key}", other, query)
    assert found.status == 404 and "no such keys" in found.json["error"]
    assert service.call("POST", "/jobs", other, query).status == 409


def test_the_answer_is_right_and_stays(answered: Answered, party: Party) -> None:
    service, token, client = answered.service, answered.token, party.client
    query = client.encrypt(party.pixels[:2])
    job = service.call("POST", "/jobs", token, query).json["id"]
    assert service.call("POST", "/jobs", token, query).json["id"] == job  # sent twice
    assert wait(service, token, job) == "done"
    first = service.call("GET", f"/jobs/{job}/answer", token)
    again = service.call("GET", f"/jobs/{job}/answer", token)
    assert first.content == again.content and service.call("GET", "/jobs", token).json
    [told] = service.call("GET", "/config", token).json["programs"]  # exact, before any is made
    sizes = {"query": query, "answer": first.content, "key": party.evaluation}
    assert {name: told[f"{name}_bytes"] for name in sizes} == {n: len(c) for n, c in sizes.items()}
    outputs = client.decrypt(first.content).outputs["output"]
    expected = atlasc.load(party.bundle).run(party.pixels[:2]).outputs["output"]
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert service.call("DELETE", f"/jobs/{job}", token).status == 204
    assert service.call("GET", f"/jobs/{job}/answer", token).status == 410


def infer(
    service: Running, token: str, query: bytes, path: str, name: str = "query", **more: object
) -> Answer:
    tensor = {"name": name, "datatype": "UINT8", "shape": [len(query)]}
    tensor["parameters"] = {"binary_data_size": len(query)}
    header = json.dumps({"id": "mine", "inputs": [tensor], **more}).encode()
    told = {"Inference_Header_Content_Length": str(len(header))}
    return service.call("POST", path, token, header + query, **told)


def test_open_inference_protocol(answered: Answered, party: Party, served: Served) -> None:
    service, token = answered.service, answered.token
    assert service.call("GET", "/v2", token).json["extensions"] == ["binary_tensor_data"]
    base = f"/v2/models/{served.model}"
    found = service.call("GET", base, token).json
    assert found["versions"] == [served.program] and found["inputs"][0]["name"] == "query"
    assert service.call("GET", f"{base}/ready", token).json["ready"]
    assert service.call("GET", "/v2/models/none", token).status == 404
    for place in (base, f"{base}/versions/{served.program}"):
        client = party.client
        done = infer(service, token, client.encrypt(party.pixels[:2]), f"{place}/infer")
        length = int(done.headers["inference-header-content-length"])
        head, body = json.loads(done.content[:length]), done.content[length:]
        assert head["id"] == "mine" and head["outputs"][0]["shape"] == [len(body)]
        assert client.decrypt(body).outputs["output"].shape == (2, 3)
    query = party.client.encrypt(party.pixels[:2])
    assert infer(service, token, query, f"{base}/versions/{'0' * 64}/infer").status == 409
    assert infer(service, token, query, f"{base}/infer", "image").status == 400
    assert service.call("POST", f"{base}/infer", token, query).status == 400
    parameters = {"parameters": {"keys": "0" * 64}}
    assert infer(service, token, query, f"{base}/infer", **parameters).status == 404


def test_what_a_client_of_others_may_not_send(
    answered: Answered, party: Party, served: Served
) -> None:
    """Such clients show the member error alone: it has the reason and the remedy."""
    service, token = answered.service, answered.token
    query = party.client.encrypt(party.pixels[:2])
    path, size = f"/v2/models/{served.model}/infer", len(query)
    right = {
        "name": "query", "datatype": "UINT8", "shape": [size],
        "parameters": {"binary_data_size": size},
    }  # fmt: skip

    def asked(head: bytes, body: bytes = query, **headers: str) -> tuple[int, str]:
        told = {"Inference_Header_Content_Length": str(len(head)), **headers}
        found = service.call("POST", path, token, head + body, **told)
        assert set(found.json) == {"error", "where", "why", "remedy"}
        assert found.json["why"] in found.json["error"] and found.json["remedy"]
        assert found.json["remedy"] in found.json["error"]
        return found.status, found.json["error"]

    def sent(tensors: list[object], body: bytes = query, **more: object) -> tuple[int, str]:
        return asked(json.dumps({"inputs": tensors, **more}).encode(), body)

    numbers = {"name": "query", "datatype": "UINT8", "shape": [2], "data": [1, 2]}
    plain = service.call("POST", path, token, json.dumps({"inputs": [numbers]}).encode())
    assert plain.status == 400 and "binary_data=True" in plain.json["error"]
    for found, status, words in (
        (sent([numbers], b""), 400, "numbers in the JSON"),
        (sent([{**right, "parameters": {}}]), 400, "it has no bytes"),
        (sent([{**right, "data": list(range(300))}]), 400, "cannot be read"),
        (sent([{**right, "shape": [1, size]}]), 400, f"its shape is [1, {size}]"),
        (sent([{**right, "datatype": "FP32"}]), 400, "this one has query (FP32)"),
        (sent([{**right, "name": "pixels"}]), 400, "inputs in the clear are not taken"),
        (sent([right, right]), 400, "query (UINT8), query (UINT8)"),
        (sent([]), 400, "this one has none"),
        (sent([right], outputs=[{"name": "logits"}]), 400, "names 'logits'"),
        (asked(b""), 400, "would be JSON"),
        (asked(b" " * (v2.MAX_HEADER + 1)), 400, "at most 65536"),
        (asked(gzip.compress(b"{}"), Content_Encoding="gzip"), 415, "request_compression"),
    ):
        assert found[0] == status and words in found[1], found
    other = query.replace(served.program.encode(), b"0" * 64, 1)
    assert sent([right], other)[0] == 409
    named = infer(service, token, query, path, outputs=[{"name": "answer"}])
    assert named.status == 200


def test_hostile_queries(answered: Answered, party: Party, served: Served) -> None:
    service, token = answered.service, answered.token
    before = sorted(service.state.rglob("*"))
    query = party.client.encrypt(party.pixels[:2])
    other = query.replace(served.program.encode(), b"0" * 64, 1)
    damaged = bytearray(query)
    damaged[len(query) // 2] ^= 1
    secret = (party.keys / "client" / "secret.key").read_bytes()
    large = query + bytes(served.query_bytes)
    for content, status, words in (
        (b"", 400, "no key, query or answer"),
        (b"\xff" * 5000, 400, "length of a header"),
        (query[:-100], 400, ""),
        (bytes(damaged), 400, ""),
        (query + b"x", 400, ""),
        (secret, 400, "no query"),
        (party.evaluation, 400, "no query"),
        (large, 413, "too large"),
        (other, 409, "other programs"),
        # The identity comes before the size.
        (other + bytes(served.query_bytes), 409, "other programs"),
    ):
        found = service.call("POST", "/jobs", token, content)
        assert found.status == status, (len(content), found.content)
        assert words in found.json["error"] + found.json["why"]
        assert str(service.state) not in found.content.decode()
    assert service.call("POST", f"/jobs?program={'0' * 64}", token, query).status == 409
    assert sorted(service.state.rglob("*")) == before  # nothing is left of them
    assert service.call("GET", "/v2/health/ready").json["ready"]


def test_hostile_requests(answered: Answered, served: Served) -> None:
    service, token = answered.service, answered.token
    key = answered.key
    for method, place, body, status in (
        ("POST", "/keys", b"", 400),
        ("POST", "/keys", b"{}", 400),
        ("POST", "/keys", b'{"configuration": 1}', 400),
        ("POST", "/keys", b"[" * 50_000, 400),
        ("POST", "/keys", b"[" * 100_000, 413),
        ("PUT", f"/keys/{key}?offset=0", b"x", 400),
        ("PUT", f"/keys/{key}", b"x", 400),
        ("PUT", f"/keys/{key}?offset=-1", b"x", 400),
        ("GET", "/keys/..%2F..%2Fother", None, 404),
        ("GET", "/nothing", None, 404),
        ("DELETE", "/v2", None, 405),
    ):
        found = service.call(method, place, token, body)
        assert found.status == status, (method, place, found.content)
        assert found.json["error"]
    base = f"/v2/models/{served.model}/versions/{served.program}/client"
    for name in ("server/program.safetensors", "../manifest.json", "client/../server/poly.air",
                 "..%2Fmanifest.json", "%2Fetc%2Fpasswd", "report.html", ""):  # fmt: skip
        assert service.call("GET", f"{base}/{name}", token).status == 404, name
    assert b'"program"' in service.call("GET", f"{base}/manifest.json", token).content


def lines(service: Running, event: str) -> list[dict[str, Any]]:
    """The lines of the log of an event."""
    return [line for line in service.log if line["event"] == event]


def figure(text: str, name: str) -> float:
    """A figure of Prometheus' text form."""
    [found] = [line for line in text.splitlines() if line.startswith(name + " ")]
    return float(found.rpartition(" ")[2])


def test_metrics_and_log_have_no_contents(answered: Answered, party: Party, served: Served) -> None:
    service = answered.service
    text = service.call("GET", "/metrics", service.token("ops", "metrics")).content.decode()
    assert 'atlasc_jobs_total{state="done"}' in text and "acme" not in text
    assert 'route="/jobs/{job}"' in text and answered.job not in text
    size = figure(text, 'atlasc_state_bytes{content="keys"}')
    assert size == len(party.evaluation) and figure(text, "atlasc_keys_stored") == 1
    assert 0 < figure(text, "atlasc_disk_free_bytes") <= figure(text, "atlasc_disk_bytes")
    assert figure(text, 'atlasc_received_bytes_total{route="/keys/{key}"}') >= size
    assert figure(text, 'atlasc_sent_bytes_total{route="/jobs/{job}/answer"}') > 0
    program = f'{{model="{served.model}",version="{served.program[:8]}"}}'
    done = figure(text, f"atlasc_job_seconds_count{program}")
    assert figure(text, f"atlasc_job_wait_seconds_count{program}") >= done > 0
    assert figure(text, 'atlasc_tokens{state="valid"}') >= 2
    assert service.call("GET", "/metrics", answered.token).status == 403
    until(lambda: "ops" in [line["entry"]["tenant"] for line in lines(service, "audit")])
    assert {line["entry"]["event"] for line in lines(service, "audit")} >= {"token added"}
    log = service.log_path.read_text()
    assert any(line["event"] == "job ended" and line["state"] == "done" for line in service.log)
    for secret in (answered.token, answered.token.rpartition("_")[2], answered.key):
        assert secret not in log


def test_dashboard_and_alerts_name_figures_of_the_service(answered: Answered) -> None:
    service = answered.service
    text = service.call("GET", "/metrics", service.token("ops", "metrics")).content.decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    exported = {
        name + suffix for name, kind in kinds.items()
        for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
    }  # fmt: skip
    labels = set(re.findall(r'[{,](\w+)="', text))
    for name in ("grafana/dashboard.json", "prometheus/alerts.yaml"):
        file = (ROOT / "packaging" / name).read_text()
        used = set(re.findall(r"\batlasc_\w+", file))
        assert len(used) > 5 and used <= exported, used - exported
        asked = set(re.findall(r'[{,] ?(\w+)=~?\\*"', file))
        asked |= {one for by in re.findall(r"by \(([\w, ]+)\)", file) for one in by.split(", ")}
        assert asked - {"job"} <= labels, asked - labels


def test_a_tenant_that_asks_too_often_waits(start: Callable[..., Running]) -> None:
    service = start("--rate", 2)
    token, other = service.token("acme"), service.token("other")
    found = [service.call("GET", "/config", token) for _ in range(8)]
    late = [one for one in found if one.status == 429]
    assert late and int(late[0].headers["retry-after"]) >= 1
    assert service.call("GET", "/config", other).status == 200
