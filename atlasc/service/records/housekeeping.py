"""What lies on the disk of a service, by tenant, and its end: removed tenants, keys of no use."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from atlasc.ir.errors import AtlasError
from atlasc.service.store import Store

DAY = 86400.0
BEGUN_DAYS = 1.0
"""Days without a chunk after which an upload that is not whole is of no use."""
VALID = "revoked is null and coalesce(expires, 1e300) > ?"
"""A token that counts, at a time."""
_OPEN = "state in ('queued', 'running')"


@dataclass(frozen=True)
class KeyFacts:
    """Keys of a tenant; times are seconds since 1970.

    Attributes:
        used: when they last had a chunk or a query.
        tokens: valid ones of the tenant.
        jobs: those that wait or run with these keys.
    """

    tenant: str
    id: str
    configuration: str
    size: int
    received: int
    ready: bool
    created: float
    used: float
    tokens: int
    jobs: int


@dataclass(frozen=True)
class Disk:
    """What a tenant takes.

    Attributes:
        tokens: valid ones.
        keys, key_bytes: sets of keys, uploads that were begun included, and their bytes.
        jobs, job_bytes: jobs that are known, and the bytes of queries, answers and texts.
    """

    tenant: str
    tokens: int
    keys: int
    key_bytes: int
    jobs: int
    job_bytes: int


@dataclass(frozen=True)
class Rules:
    """Which keys are of no use; those with jobs that wait or run always are.

    Attributes:
        unused: seconds without a query; None: no matter how long.
        ended: those of tenants without a valid token.
        configurations: those of any other configuration; None: of none.
    """

    unused: float | None = None
    ended: bool = False
    configurations: frozenset[str] | None = None

    def why(self, key: KeyFacts, now: float) -> str:
        """Why keys are of no use; empty if they are of some."""
        if key.jobs:
            return ""
        if not key.ready and key.used + BEGUN_DAYS * DAY < now:
            return "not whole"
        if self.ended and not key.tokens:
            return "no valid token"
        if self.configurations is not None and key.configuration not in self.configurations:
            return "no program"
        if self.unused is not None and key.used + self.unused < now:
            return f"unused for {(now - key.used) / DAY:.0f} days"
        return ""


def all_keys(store: Store) -> list[KeyFacts]:
    """The keys of all tenants."""
    rows = store.rows(
        "select tenant, id, configuration, size, received, ready, created, "
        "coalesce(used, created) used, "
        f"(select count(*) from tokens t where t.tenant = k.tenant and {VALID}) tokens, "
        f"(select count(*) from jobs j where j.tenant = k.tenant and j.key = k.id and {_OPEN}) jobs"
        " from keys k order by tenant, created",
        time.time(),
    )
    return [KeyFacts(**{**dict(row), "ready": bool(row["ready"])}) for row in rows]


def disk(store: Store) -> list[Disk]:
    """What each tenant takes, the most first."""
    rows = store.rows(
        "select tenant, "
        f"(select count(*) from tokens t where t.tenant = n.tenant and {VALID}) tokens, "
        "(select count(*) from keys k where k.tenant = n.tenant) keys, "
        "(select coalesce(sum(size), 0) from keys k where k.tenant = n.tenant) key_bytes, "
        "(select count(*) from jobs j where j.tenant = n.tenant) jobs, "
        "(select coalesce(sum(size + answer_bytes), 0) from jobs j where j.tenant = n.tenant) "
        "job_bytes from (select tenant from tokens union select tenant from keys union "
        "select tenant from jobs) n",
        time.time(),
    )
    known = [Disk(**dict(row)) for row in rows]
    found = [replace(one, job_bytes=one.job_bytes + store.text_bytes(one.tenant)) for one in known]
    return sorted(found, key=lambda one: (-one.key_bytes - one.job_bytes, one.tenant))


def prune(store: Store, rules: Rules, by: str, *, dry: bool = False) -> list[tuple[KeyFacts, str]]:
    """Remove the keys that are of no use; returns these, and why. ``dry`` removes none."""
    now = time.time()
    found = [(key, why) for key in all_keys(store) if (why := rules.why(key, now))]
    return [
        (key, why)
        for key, why in found
        if dry or remove_keys(store, key.tenant, key.id, by, why=why)
    ]


def remove_keys(store: Store, tenant: str, key: str, by: str, *, why: str = "") -> bool:
    """Remove keys from the disk; False if a job needs them now, or they are gone."""
    with store.writing() as db:
        needed = f"select count(*) from jobs where tenant = ? and key = ? and {_OPEN}"
        if db.execute(needed, (tenant, key)).fetchone()[0]:
            return False
        if not db.execute("delete from keys where tenant = ? and id = ?", (tenant, key)).rowcount:
            return False
        store.audit.note("keys deleted", by, tenant=tenant, key=key, why=why)
    for ready in (True, False):
        store.key_path(tenant, key, ready=ready).unlink(missing_ok=True)
    shutil.rmtree(store.text_folder(tenant, key), ignore_errors=True)
    with suppress(OSError):  # other keys of the tenant
        store.key_path(tenant, "").parent.rmdir()
    return True


def remove_tenant(store: Store, tenant: str, by: str) -> Disk:
    """Remove a tenant: tokens, keys and jobs, also those that run. Returns what there was.

    Raises:
        AtlasError: there is no such tenant.
    """
    known = [one for one in disk(store) if one.tenant == tenant]
    if not known:
        raise AtlasError(f"there is no tenant {tenant!r}", remedy="atlasc keys list shows them")
    with store.writing() as db:
        jobs = [row["id"] for row in store.rows("select id from jobs where tenant = ?", tenant)]
        keys = [row["id"] for row in store.rows("select id from keys where tenant = ?", tenant)]
        for table in ("tokens", "jobs", "keys"):
            db.execute(f"delete from {table} where tenant = ?", (tenant,))
        store.audit.note("tenant removed", by, tenant=tenant, keys=keys, jobs=len(jobs))
    for job in jobs:
        shutil.rmtree(store.job_folder(job), ignore_errors=True)
    shutil.rmtree(store.key_path(tenant, "").parent, ignore_errors=True)
    shutil.rmtree(store.text_folder(tenant), ignore_errors=True)
    return known[0]


def unknown_keys(store: Store, loaded: Iterator[str]) -> list[str]:
    """Those of some ids of keys that no tenant has any more."""
    return [
        key for key in loaded if not store.number("select count(*) from keys where id = ?", key)
    ]
