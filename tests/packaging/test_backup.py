"""The state is copied while it is written, as docs/how-to/operate.md says, and served again.

It takes some seconds: a service writes all the while, and another one serves the copy.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of
from tiny_model import Tiny

from atlasc.remote.wire import FINISHED
from atlasc.service.programs import Programs
from atlasc.service.records.audit import Audit
from atlasc.service.store import Store
from atlasc.service.tokens import revoke_token
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running, until
from tests.atlasc.service.test_endpoints import upload, wait

PAGE = ROOT / "docs" / "how-to" / "operate.md"
pytestmark = [
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
    pytest.mark.skipif(shutil.which("sqlite3") is None, reason="sqlite3 is not installed"),
]


@pytest.fixture(scope="module")
def services() -> Iterator[list[Running]]:
    found: list[Running] = []
    yield found
    for one in found:
        one.kill()


def commands(state: Path, copy: Path) -> str:
    """The page's commands, with these folders."""
    [text] = [block.text for block in blocks_of(PAGE) if ".backup" in block.text]
    for before, after in (("/var/lib/atlasc", state), ("/var/backups/atlasc", copy)):
        assert before in text
        text = text.replace(before, str(after))
    assert not re.search(r"/var/", text)
    return text


@pytest.mark.deep("faults")
def test_a_hot_copy_is_served_again(tiny: Tiny, tmp_path: Path, services: list[Running]) -> None:
    party, (served,) = Party.of(tiny, tmp_path / "keys"), Programs([tiny.bundle])
    service = Running(tmp_path / "state", tiny.bundle, "--rate", 10_000)
    services.append(service)
    token, other = service.token("acme"), service.token("other")
    upload(service, token, party, served)
    first = service.call("POST", "/jobs", token, party.client.encrypt(party.pixels[:2])).json["id"]
    assert wait(service, token, first) == "done"
    sent: list[str] = []
    copied = threading.Event()

    def ask() -> None:
        """Writes until the copy is made; of every second answer nothing stays."""
        client = party.client
        while not copied.is_set():
            query = client.encrypt(party.pixels[:2])
            job = service.call("POST", "/jobs", token, query).json["id"]
            sent.append(job)
            if len(sent) % 2:
                wait(service, token, job)
                service.call("DELETE", f"/jobs/{job}", token)

    writing = threading.Thread(target=ask)
    writing.start()
    until(lambda: len(sent) > 3)
    copy = tmp_path / "copy"
    subprocess.run(["sh", "-c", commands(service.state, copy)], capture_output=True, check=False)
    copied.set()
    writing.join()
    store = Store(service.state)
    revoke_token(store, other)
    store.close()
    service.end_without_a_fault()

    again = Running(copy, tiny.bundle)
    services.append(again)
    known = {job["id"]: job for job in again.call("GET", "/jobs", token).json}
    assert len(known) >= 4 and known[first]["state"] == "done"
    until(lambda: all(wait(again, token, job) in FINISHED for job in known))
    states = [again.call("GET", f"/jobs/{job}", token).json for job in known]
    for job in states:
        answer = again.call("GET", f"/jobs/{job['id']}/answer", token)
        expected = {"done": (200, 410), "failed": (422,), "cancelled": (409, 410)}[job["state"]]
        assert answer.status in expected, (job, answer.content)
    assert again.call("GET", f"/jobs/{first}/answer", token).status == 200
    assert again.call("GET", "/config", other).status == 200, "revoked after the copy: say so"
    [keys] = again.call("GET", "/keys", token).json
    assert keys["ready"]
    new = again.call("POST", "/jobs", token, party.client.encrypt(party.pixels[:2])).json["id"]
    assert wait(again, token, new) == "done"
    assert all(number > 2 for number in Audit(copy).faults()), "at most its last line is cut"
    again.end_without_a_fault()
