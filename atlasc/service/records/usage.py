"""What a service keeps: disk, keys, tenants and tokens, as figures; and whether there is room.

Figures are read when they are asked for. They are sums over all tenants, so that their number does
not grow with these.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB
from atlasc.service.programs import Programs
from atlasc.service.records.housekeeping import VALID
from atlasc.service.store import DATABASE, Store

TOKENS = f"""
select case when revoked is not null then 'revoked' when {VALID} then 'valid' else 'expired' end s,
count(*) n from tokens group by s
"""
TENANTS = f"""
select count(*) from (select tenant from tokens where {VALID} union select tenant from keys
union select tenant from jobs)
"""


class Usage(Collector):
    """Figures of a store, for a registry of Prometheus."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The figures of now."""
        store, now = self._store, time.time()
        disk = shutil.disk_usage(store.folder)
        yield GaugeMetricFamily("atlasc_disk_bytes", "Size of the state's disk", disk.total)
        yield GaugeMetricFamily("atlasc_disk_free_bytes", "Free on the state's disk", disk.free)
        state = GaugeMetricFamily("atlasc_state_bytes", "Bytes of the state", labels=["content"])
        for content, size in self._sizes().items():
            state.add_metric([content], size)
        yield state
        whole = store.number("select count(*) from keys where ready")
        begun = store.number("select count(*) from keys where not ready")
        yield GaugeMetricFamily("atlasc_keys_stored", "Key sets on the disk", whole)
        yield GaugeMetricFamily("atlasc_uploads_begun", "Uploads that are not whole", begun)
        tenants = store.number(TENANTS, now)
        yield GaugeMetricFamily("atlasc_tenants", "Tenants with tokens, keys or jobs", tenants)
        tokens = GaugeMetricFamily("atlasc_tokens", "Tokens", labels=["state"])
        known = {row["s"]: row["n"] for row in store.rows(TOKENS, now)}
        for name in ("valid", "expired", "revoked"):
            tokens.add_metric([name], known.get(name, 0))
        yield tokens

    def _sizes(self) -> dict[str, int]:
        """Bytes by what they are of."""
        store = self._store
        database = sum(path.stat().st_size for path in store.folder.glob(f"{DATABASE}*"))
        audit = store.audit.path
        return {
            "keys": store.number("select sum(received) from keys"),
            "jobs": store.number("select sum(size + answer_bytes) from jobs"),
            "database": database,
            "audit": audit.stat().st_size if audit.exists() else 0,
        }


def require_disk(store: Store, programs: Programs, quota: int) -> None:
    """Refuse a disk, or a share of it, that has no room for one tenant.

    A full disk is no reason: what lies there already may be answered, and removed.

    Raises:
        AtlasError: the keys of one tenant, with a query and its answer, will never fit.
    """
    kept = store.number("select sum(received) from keys")
    kept += store.number("select sum(size + answer_bytes) from jobs")
    room = shutil.disk_usage(store.folder).free + kept
    for one in programs:
        needed = one.stored_bytes + one.query_bytes + one.answer_bytes
        if needed > room:
            raise AtlasError(
                f"the disk of {store.folder} is too small for one tenant of {one.model}",
                why=f"keys, a query and its answer take {needed / GIB:.1f} GiB; {room / GIB:.1f} "
                "are free, or used by this service",
                remedy="choose a larger disk with --state, or compile with a smaller key-memory "
                "of --target",
            )
        if one.stored_bytes > quota:
            raise AtlasError(
                f"--quota is too small for the keys of one tenant of {one.model}",
                why=f"they take {one.stored_bytes / GIB:.1f} GiB of {quota / GIB:.1f}",
                remedy="give a larger --quota, or compile with a smaller key-memory of --target",
            )
