"""The client's keys for a service: made once, uploaded once, in chunks that go on after a cut."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from atlasc.api.roles import check_target, make_keys
from atlasc.bundle.folder import Bundle
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, open_plain
from atlasc.progress import Steps
from atlasc.remote.link import Link, Refused, address
from atlasc.remote.wire import CHUNK, Config, KeyStatus, NewKey, ProgramFacts
from atlasc.runtime.interface import keys_of
from atlasc.targets.key_folders import LARGEST, configuration_of, read_index

EVALUATION = "evaluation.key"
TRIES = 5
"""Times that one chunk is sent before the way to the service counts as broken."""
_AGAIN = (409, 422)
"""The upload stands elsewhere, or something was damaged."""


def own_keys(bundle: Bundle, facts: ProgramFacts, folder: Path, steps: Steps) -> Path:
    """The folder with the client's keys for a program, made if they are not there.

    Raises:
        AtlasError: client and service disagree on the keys of the program; or as ``make_keys``.
    """
    target = check_target(bundle, "client")
    configuration = configuration_of(target.name, bundle.parameters, keys_of(bundle.interface))
    if configuration != facts.configuration:
        raise AtlasError(
            "client and service disagree on the keys of the program",
            why=f"{configuration[:8]} here, {facts.configuration[:8]} there",
            remedy="use the same version of atlasc on both sides",
        )
    place = folder / "keys" / configuration[:16]
    if not place.is_dir():
        make_keys(bundle, place, steps=steps)
    return place


def upload_keys(
    link: Link, config: Config, facts: ProgramFacts, bundle: Bundle, keys: Path, steps: Steps
) -> str:
    """Make sure that the service has the evaluation keys, and return their id.

    Raises:
        AtlasError: the keys are damaged, or the service refuses them.
    """
    index = read_index(keys / "server", "server", bundle.target, bundle.parameters)
    path, digest = keys / "server" / EVALUATION, index.files.get(EVALUATION, "")
    if any(one.id == digest and one.ready for one in config.keys):
        return digest
    with open_plain(path, LARGEST, links=False) as file:
        size = file.seek(0, 2)
        new = NewKey(configuration=facts.configuration, size=size, sha256=digest)
        body, failures, kept = new.model_dump_json().encode(), 0, 0
        with steps("uploading keys (MiB)", total=-(-size // MIB)) as step:
            now = link.send("POST", address("keys"), KeyStatus, body)
            while not now.ready:
                at = now.received
                step.report("", at // MIB, -(-size // MIB))
                file.seek(min(at, size))
                chunk = file.read(min(config.chunk_bytes, CHUNK))
                try:
                    now = _send_chunk(link, digest, at, chunk)
                except Refused as refused:
                    if refused.status not in _AGAIN or failures == TRIES - 1:
                        raise
                    # A chunk arrived whose answer was lost, or arrived damaged.
                    now = link.send("POST", address("keys"), KeyStatus, body)
                more = now.received >= at + len(chunk) > kept
                kept, failures = max(kept, at + len(chunk)), 0 if more else failures + 1
                if failures == TRIES and not now.ready:
                    raise AtlasError(
                        "the service does not keep the keys that it is sent",
                        why=f"it has {now.received} of {size} bytes after {TRIES} tries",
                        remedy="ask whoever runs the service",
                    )
    return digest


def _send_chunk(link: Link, key: str, offset: int, chunk: bytes) -> KeyStatus:
    digest = base64.b64encode(hashlib.sha256(chunk).digest()).decode()
    headers = {"Content-Digest": f"sha-256=:{digest}:", "Content-Type": "application/octet-stream"}
    place = address("keys", key, offset=str(offset))
    return link.send("PUT", place, KeyStatus, chunk, headers=headers)
