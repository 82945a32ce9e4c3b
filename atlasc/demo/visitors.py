"""Visitors of a service: each has a tenant of its own, with tight limits and for two hours."""

from __future__ import annotations

import re
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from threading import Lock

from atlasc.demo.invitation import Invitation
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB
from atlasc.remote.wire import FINISHED
from atlasc.service.edge.door import address_of
from atlasc.service.edge.rates import Rates
from atlasc.service.endpoints import cancel, delete_key
from atlasc.service.faults import Refusal
from atlasc.service.jobs import Limits
from atlasc.service.programs import Programs
from atlasc.service.requests import Service
from atlasc.service.tokens import (
    DAY,
    DEFAULT_SCOPES,
    Caller,
    TokenFacts,
    add_token,
    all_tokens,
)

MOST = 32
"""Visitors at once, if the disk has room for their keys."""
STAY = 2 * 3600.0
"""Seconds that a token is valid."""
PER_ADDRESS = 4
"""Visitors of one address at once, and of one network of IPv6."""
EMPTY = 600.0
"""Seconds after which a visitor who sent nothing of any keys makes room for others."""
JOBS = 2
"""Jobs of one visitor that wait."""
KEEP = 3600.0
"""Seconds that an answer is kept."""
_VISITOR = re.compile(r"visitor-[0-9a-f]{16}")


def tight(limits: Limits, programs: Programs) -> Limits:
    """The limits of a demonstration: those given, and at most what a visitor needs.

    A visitor's share of the disk holds one set of keys for each program, and the jobs that wait.
    """
    share = sum(p.key_bytes + (JOBS + 1) * (p.query_bytes + p.answer_bytes) for p in programs)
    return replace(
        limits,
        tenant_queue=min(limits.tenant_queue, JOBS),
        quota=min(limits.quota, share),
        keep=min(limits.keep, KEEP),
    )


class Visitors:
    """The visitors of a service.

    Attributes:
        most: visitors at once.
    """

    def __init__(self, service: Service) -> None:
        """Count the room for visitors.

        Raises:
            AtlasError: the disk holds the keys of none.
        """
        self._service, self._lock = service, Lock()
        self._rates, self._all = (
            Rates(rate=1.0, who="an address"),
            Rates(rate=10.0, who="all visitors"),
        )
        self._from: dict[str, str] = {}  # tenant -> address
        folder, quota = service.store.folder, service.uploads.quota
        free = shutil.disk_usage(folder).free
        # What visitors of an earlier start left is still on the disk, and counts as theirs.
        mine = sum(service.store.used_bytes(one.tenant) for one in self.here())
        self.most = min(MOST, (free + mine) // quota)
        if self.most < 1:
            raise AtlasError(
                "the disk has no room for a visitor",
                where=str(folder),
                why=f"keys and jobs of one take up to {quota / GIB:.3g} GiB; {free / GIB:.3g} GiB "
                "are free",
                remedy="choose another --state",
            )

    def here(self) -> list[TokenFacts]:
        """The tokens of visitors whose keys and jobs were not removed yet."""
        return [one for one in all_tokens(self._service.store) if _VISITOR.fullmatch(one.tenant)]

    def welcome(self, host: str) -> Invitation:
        """A token for a new visitor.

        Args:
            host: address of the visitor's machine.

        Raises:
            Refusal: too many came at once, or are here.
        """
        with self._lock:
            address = address_of(host)
            self._rates.take(address)
            self._all.take("visitors")
            self._remove()
            here = self.here()
            self._from = {one.tenant: self._from.get(one.tenant, "") for one in here}
            mine = [one for one in here if self._from[one.tenant] == address]
            if len(mine) >= PER_ADDRESS:
                raise _no_room(mine, f"{len(mine)} visitors of your address are here")
            if len(here) >= self.most:
                raise _no_room(here, f"{len(here)} are here")
            tenant = f"visitor-{secrets.token_hex(8)}"
            self._from[tenant], store = address, self._service.store
            token = add_token(store, tenant, DEFAULT_SCOPES, STAY / DAY, by="visitor")
            return Invitation(token=token, seconds=STAY)

    def _remove(self) -> None:
        """Remove keys and jobs of visitors whose time is over, or who sent no keys."""
        service, now = self._service, time.time()
        for one in self.here():
            keys = service.uploads.all(one.tenant)
            empty = not any(key.received for key in keys) and one.created + EMPTY < now
            if one.state == "valid" and not empty:
                continue
            caller = Caller(one.tenant, frozenset(DEFAULT_SCOPES))
            for job in service.jobs.all(one.tenant):
                if job.state not in FINISHED or job.answer_bytes:
                    cancel(service, caller, job.id)
            for key in keys:
                delete_key(service, caller, key.id)
            with suppress(OSError):
                service.store.key_path(one.tenant, "").parent.rmdir()
            with service.store.writing() as db:
                db.execute("delete from tokens where tenant = ?", (one.tenant,))


def _no_room(here: list[TokenFacts], why: str) -> Refusal:
    ends = min(one.expires or 0.0 for one in here)
    return Refusal(
        429,
        "this demonstration has no room for one more visitor",
        why=why,
        remedy="come back later",
        retry_after=max(1.0, ends - time.time()),
    )
