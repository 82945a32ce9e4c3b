"""Evaluation keys of tenants, uploaded in chunks that survive a cut and a kill.

The digest of the whole file names an upload. The database says how many bytes are safe; what lies
beyond them on the disk is overwritten by the next chunk. A file becomes keys when its digest is
right, and not before.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from atlasc.bundle.sealed import EVALUATION_KEYS, HEAD, LENGTH, header_bytes, sealed_facts
from atlasc.files import remove, sync_entry
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import open_plain, sha256_of
from atlasc.remote.wire import CHUNK, KeyStatus, NewKey
from atlasc.service.edge.rates import Rates
from atlasc.service.faults import Refusal
from atlasc.service.programs import Programs
from atlasc.service.records.housekeeping import remove_keys
from atlasc.service.store import Store

STRIPES = 64
"""Locks of all keys together."""
NEW, NEW_AT_ONCE = 1 / 60, 64.0
"""Uploads that a tenant begins, a second and at once."""
MOST_KEYS, MOST_BEGUN = 64, 4
"""Keys of one tenant, and uploads that are not whole."""


@dataclass(frozen=True)
class Uploads:
    """The keys of all tenants.

    Attributes:
        quota: bytes on disk that a tenant may take.
    """

    store: Store
    programs: Programs
    quota: int
    _begun: Rates = field(default_factory=lambda: Rates(NEW, NEW_AT_ONCE))
    _locks: Sequence[Lock] = field(default_factory=lambda: [Lock() for _ in range(STRIPES)])

    @classmethod
    def of(cls, store: Store, programs: Programs, quota: int) -> Uploads:
        """The keys in a store; files that the database does not name are removed.

        A state that was copied while it was written may lack files, or parts of them: such keys are
        uploaded again, and an upload goes on at the byte that is there.
        """
        known = set[Path]()
        for row in store.rows("select tenant, id, ready, size, received from keys"):
            path = store.key_path(row["tenant"], row["id"], ready=bool(row["ready"]))
            size = path.stat().st_size if path.is_file() else 0
            if row["ready"] and size != row["size"]:
                why = "their file is not whole"
                with store.writing() as db:
                    # Also what jobs need: none of them can be answered, and each will say so.
                    gone = "delete from keys where tenant = ? and id = ?"
                    db.execute(gone, (row["tenant"], row["id"]))
                    told = {"tenant": row["tenant"], "key": row["id"], "why": why}
                    store.audit.note("keys deleted", "service", **told)
                continue
            if size < row["received"]:
                with store.writing() as db:
                    back = "update keys set received = ? where tenant = ? and id = ?"
                    db.execute(back, (size, row["tenant"], row["id"]))
            path.parent.mkdir(mode=0o700, exist_ok=True)
            known.add(path)
        for path in (store.folder / "keys").glob("*/*"):
            if path not in known:
                remove(path)
        return cls(store, programs, quota)

    def all(self, tenant: str) -> tuple[KeyStatus, ...]:
        """The keys of a tenant, the oldest first."""
        sql = "select * from keys where tenant = ? order by created, id"
        return tuple(map(_status, self.store.rows(sql, tenant)))

    def one(self, tenant: str, key: str) -> KeyStatus:
        """Some keys of a tenant.

        Raises:
            Refusal: the tenant has no such keys, whatever other tenants have.
        """
        row = self.store.row("select * from keys where tenant = ? and id = ?", tenant, key)
        if row is None:
            raise Refusal(404, "you have no such keys here", remedy="upload them: POST /keys")
        return _status(row)

    def begin(self, tenant: str, new: NewKey) -> KeyStatus:
        """Announce an upload; one that was begun before goes on.

        Raises:
            Refusal: no program here takes such keys, they are too large, or the quota is spent.
        """
        fitting = [one for one in self.programs if one.configuration == new.configuration]
        if not fitting:
            raise Refusal(
                409,
                "no program of this service takes these keys",
                why=f"their configuration is {new.configuration[:8]}",
                remedy="get the client's part of the program again, and make keys for it",
            )
        most = max(one.key_bytes for one in fitting)
        if not 0 < new.size <= most:
            raise Refusal(
                413, "keys of this program are smaller", why=f"{new.size} bytes; at most {most}"
            )
        folder = self.store.key_path(tenant, new.sha256).parent
        folder.mkdir(mode=0o700, exist_ok=True)
        with self.store.writing() as db:
            row = (tenant, new.sha256)
            found = db.execute("select * from keys where tenant = ? and id = ?", row).fetchone()
            if found is None:
                self._begun.take(tenant)
                _require_few(db, tenant)
                used = self.store.used_bytes(tenant)
                if used + new.size > self.quota:
                    raise quota_spent(used, new.size, self.quota)
                db.execute(
                    "insert into keys (tenant, id, configuration, size, received, ready, created) "
                    "values (?, ?, ?, ?, 0, 0, ?)",
                    (tenant, new.sha256, new.configuration, new.size, time.time()),
                )
            elif (found["size"], found["configuration"]) != (new.size, new.configuration):
                raise Refusal(409, "an upload of this digest has another size or configuration")
        return self.one(tenant, new.sha256)

    def add(
        self, tenant: str, key: str, offset: int, chunk: bytes | bytearray, digest: bytes
    ) -> KeyStatus:
        """Add a chunk at the place where the upload stands, and check the whole after the last.

        Args:
            offset: place of the chunk's first byte.
            digest: SHA-256 of the chunk, as the client computed it.

        Raises:
            Refusal: the chunk is damaged, at another place, or too large; the file is no evaluation
                keys; or the whole file is not the one announced, and the upload starts again.
        """
        with self._lock(tenant, key):
            now = self.one(tenant, key)
            if now.ready:
                return now
            if offset != now.received:
                raise Refusal(
                    409,
                    "this chunk is not the next one",
                    why=f"it begins at byte {offset}; the upload stands at {now.received}",
                    remedy=f"go on at byte {now.received}",
                )
            end = offset + len(chunk)
            if not chunk or len(chunk) > CHUNK or end > now.size:
                raise Refusal(
                    413,
                    "this chunk is empty or too large",
                    why=f"it ends at byte {end} of {now.size}; a chunk has at most {CHUNK} bytes",
                )
            if hashlib.sha256(chunk).digest() != digest:
                raise Refusal(422, "this chunk was damaged on its way", remedy="send it again")
            path = self.store.key_path(tenant, key, ready=False)
            if offset < HEAD:
                start = _head(path, offset) + bytes(chunk[:HEAD])
                _require_evaluation_keys(start, whole=end == now.size)
            _write_at(path, offset, chunk)
            ready = end == now.size
            if ready and sha256_of(path) != key:
                self._set(tenant, key, 0, ready=False)
                raise Refusal(
                    422,
                    "the uploaded file is not the one that was announced",
                    why="its SHA-256 differs, so that a part of it was damaged",
                    remedy="upload it again from the first byte",
                )
            if ready:
                path.replace(self.store.key_path(tenant, key))
                sync_entry(path.parent)
            self._set(tenant, key, end, ready=ready)
            try:
                return self.one(tenant, key)
            except Refusal:  # atlasc tokens --remove, or keys prune, came in between
                for place in (path, self.store.key_path(tenant, key)):
                    place.unlink(missing_ok=True)
                raise

    def delete(self, tenant: str, key: str) -> None:
        """Remove keys, or an upload that was not finished.

        Raises:
            Refusal: there are no such keys, or a job still needs them.
        """
        with self._lock(tenant, key):
            self.one(tenant, key)
            if not remove_keys(self.store, tenant, key, f"tenant {tenant}"):
                raise Refusal(
                    409, "jobs still need these keys", remedy="wait for them, or cancel them"
                )

    def _lock(self, tenant: str, key: str) -> Lock:
        """The lock of some keys, which exist or not: there are a few for all names."""
        return self._locks[hash((tenant, key)) % len(self._locks)]

    def _set(self, tenant: str, key: str, received: int, *, ready: bool) -> None:
        with self.store.writing() as db:
            db.execute(
                "update keys set received = ?, ready = ?, used = ? where tenant = ? and id = ?",
                (received, ready, time.time(), tenant, key),
            )
            if ready:
                self.store.audit.note("keys uploaded", f"tenant {tenant}", tenant=tenant, key=key)


def _require_few(db: sqlite3.Connection, tenant: str) -> None:
    sql = "select count(*), coalesce(sum(not ready), 0) from keys where tenant = ?"
    count, begun = db.execute(sql, (tenant,)).fetchone()
    if count >= MOST_KEYS or begun >= MOST_BEGUN:
        raise Refusal(
            507,
            "you have too many keys here",
            why=f"{count} of at most {MOST_KEYS}, of which {begun} of at most {MOST_BEGUN} uploads "
            "are not whole",
            remedy="end uploads that you have begun, or delete keys that you do not need",
        )


def quota_spent(used: int, more: int, quota: int) -> Refusal:
    """The refusal of what does not fit into a tenant's share of the disk."""
    return Refusal(
        507,
        "your share of the server's disk is used up",
        why=f"{used} bytes are used, {more} more were asked for, of {quota}",
        remedy="delete keys and finished jobs that you do not need",
    )


def _status(row: object) -> KeyStatus:
    found = dict(row)  # type: ignore[call-overload]
    names = ("id", "configuration", "size", "received")
    return KeyStatus(**{name: found[name] for name in names}, ready=bool(found["ready"]))


def _head(path: Path, size: int) -> bytes:
    """The bytes of an upload that are safe, as far as its header can reach."""
    if not size:
        return b""
    with open_plain(path, 2**63, links=False) as file:
        return file.read(size)


def _require_evaluation_keys(start: bytes, *, whole: bool) -> None:
    """Refuse a file that begins as anything but evaluation keys, before a byte after its header is
    stored.
    """
    try:
        if not whole and (len(start) < LENGTH or len(start) < header_bytes(start)):
            return
        kind = sealed_facts(start).get("kind", "")
    except AtlasError as error:
        raise Refusal(400, error.what, why=error.why, remedy=error.remedy) from None
    if kind != EVALUATION_KEYS:
        raise Refusal(
            400,
            "these are no evaluation keys",
            why=f"the file says that it is: {kind or 'nothing'}",
            remedy="send evaluation.key of the folder server; secret.key never leaves the client",
        )


def _write_at(path: Path, offset: int, chunk: bytes | bytearray) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
