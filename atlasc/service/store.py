"""What the service knows, in one SQLite file that survives a kill at any moment.

Everything that a client was told is in the database before the client hears it. Large content lies
in files beside it, which exist before a row names them; files that no row names are removed when
the service starts. The folder is open to its owner alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

from atlasc.files import locked
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import require_private
from atlasc.service.records.audit import Audit

DATABASE = "service.sqlite"
VERSION = 2
SCHEMA = """
create table tokens(
    id text primary key, tenant text not null, scopes text not null, salt blob not null,
    digest blob not null, created real not null, expires real, revoked real
) strict;
create table keys(
    tenant text not null, id text not null, configuration text not null, size integer not null,
    received integer not null, ready integer not null, created real not null, used real,
    primary key (tenant, id)
) strict;
create table jobs(
    number integer primary key autoincrement, id text not null unique, tenant text not null,
    program text not null, key text not null, query text not null, digest text not null,
    size integer not null, state text not null, created real not null, started real,
    finished real, crashes integer not null, answer text, answer_bytes integer not null,
    fault text, unique (tenant, query)
) strict;
create index jobs_by_state on jobs(state, tenant);
create index jobs_by_start on jobs(tenant, started);
"""


class Store:
    """The database and the folders beside it.

    Attributes:
        folder: folder of all state, mode 0700.
        audit: who changed tokens and keys.
    """

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        """Open a folder. Nothing is written into one that is refused.

        Args:
            make: whether a folder without a state gets one; if not, it is refused.

        Raises:
            AtlasError: it cannot be written, is open to others, is of another version, or has no
                state.
        """
        self.folder, self._lock, self.audit = folder, Lock(), Audit(folder)
        path = folder / DATABASE
        if not make and not os.path.exists(path):
            raise AtlasError(
                f"there is no state of a service in {folder}",
                why=f"it has no {DATABASE}",
                remedy="give the --state of atlasc serve; serve and tokens --add make a new one",
            )
        if folder.is_dir():
            require_private(folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("keys", "jobs", "texts"):
                (folder / name).mkdir(mode=0o700, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):  # also of a disk that is read-only
                raise PermissionError(errno.EACCES, "it cannot be written")
            # Never opened beside SQLite: closing a file of the database gives up this process's
            # locks on it, and another process would then take the database for unused.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise AtlasError(
                f"the folder {folder} cannot hold the state of a service",
                why=error.strerror or str(error),
                remedy="choose a folder of your own with --state",
            ) from None
        require_private(path)
        try:
            self._open(path)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # of a message, too
            raise AtlasError(
                f"{path} cannot be used",
                why=str(error),
                remedy="make room on the disk if it is full; otherwise restore the folder",
            ) from None

    def _open(self, path: Path) -> None:
        self._db, self._reader, self._gate = (_connected(path) for _ in range(3))
        self._writer: int | None = None
        self._reading = Lock()
        with self.writing() as db:
            (version,) = db.execute("pragma user_version").fetchone()
            if version == 0:
                for statement in SCHEMA.split(";\n"):
                    db.execute(statement)
                db.execute(f"pragma user_version = {VERSION}")
            elif version == 1:  # before keys had an age
                db.execute("alter table keys add column used real")
                db.execute(f"pragma user_version = {VERSION}")
            elif version != VERSION:
                raise AtlasError(
                    f"{path} has format {version}",
                    why=f"this atlasc reads format {VERSION}",
                    remedy="use the version of atlasc that wrote it, or another --state",
                )

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is on the disk when the block ends, or never happened."""
        with self._lock:
            self._db.execute("begin immediate")
            self._writer = get_ident()
            try:
                yield self._db
                self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise
            finally:
                self._writer = None

    def rows(self, sql: str, *values: Any) -> Sequence[sqlite3.Row]:
        """The rows of a query; inside of :meth:`writing`, with what was written there."""
        if self._writer == get_ident():
            return self._db.execute(sql, values).fetchall()
        with self._reading:  # readers wait for no disk
            return self._reader.execute(sql, values).fetchall()

    def at_the_gate(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row of a query, by a connection of its own: for the event loop's thread alone,
        which waits for no other reader.
        """
        row: sqlite3.Row | None = self._gate.execute(sql, values).fetchone()
        return row

    def row(self, sql: str, *values: Any) -> sqlite3.Row | None:
        """The first row of a query; None if there is none."""
        return next(iter(self.rows(sql, *values)), None)

    def number(self, sql: str, *values: Any) -> int:
        """The first number of a query that has one row."""
        row = self.row(sql, *values)
        return 0 if row is None or row[0] is None else int(row[0])

    def key_path(self, tenant: str, key: str, *, ready: bool = True) -> Path:
        """The file of evaluation keys, or of an upload that is not whole yet."""
        return self.folder / "keys" / tenant / (f"{key}.key" if ready else f"{key}.part")

    def job_folder(self, job: str) -> Path:
        """The folder of a job's query and answer."""
        return self.folder / "jobs" / job

    def used_bytes(self, tenant: str) -> int:
        """Bytes that a tenant's keys (announced uploads too), queries, answers and texts take."""
        keys = self.number("select sum(size) from keys where tenant = ?", tenant)
        sizes = "select sum(size + answer_bytes) from jobs where tenant = ?"
        return keys + self.number(sizes, tenant) + self.text_bytes(tenant)

    def text_folder(self, tenant: str, key: str = "") -> Path:
        """The folder of the texts of a tenant with some keys: a folder for each session."""
        return self.folder / "texts" / tenant / key

    def text_bytes(self, tenant: str) -> int:
        """Bytes that the keys and values of a tenant's texts take."""
        found = 0
        for path in self.text_folder(tenant).glob("*/*/*"):
            with suppress(FileNotFoundError):  # a draft that was moved, or a text that ended
                found += path.stat().st_size
        return found

    def close(self) -> None:
        """Close the database."""
        with self._lock, self._reading:
            self._db.close()
            self._reader.close()
            self._gate.close()


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.execute("pragma journal_mode = wal")
    db.execute("pragma synchronous = full")
    return db


@contextmanager
def only_service(store: Store) -> Iterator[None]:
    """The store of this process alone, as long as the block runs; ``atlasc tokens`` still works.

    Raises:
        AtlasError: another service uses the folder.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(store.folder, fcntl.LOCK_NB))
        except OSError:
            raise AtlasError(
                f"another service uses {store.folder}",
                remedy="stop it first, or give this one another --state",
            ) from None
        yield
