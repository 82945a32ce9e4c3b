"""Tokens of tenants: random, stored as salted digests, with scopes, revocable at once.

A token has 256 random bits, so one SHA-256 is enough: there is no weak password to guess, and a
slow function would only cost the service time.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.service.records.audit import operator
from atlasc.service.store import Store

SCOPES = ("infer", "keys", "metrics")
"""``infer``: ask and read answers; ``keys``: upload and delete keys; ``metrics``: figures of the
whole service, which a tenant does not need."""
DEFAULT_SCOPES = ("infer", "keys")
DAY = 86400.0
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TOKEN = re.compile(r"atlasc_([0-9a-f]{16})_([0-9a-f]{64})")


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    Attributes:
        tenant: owner of keys and jobs.
        scopes: what the token allows.
    """

    tenant: str
    scopes: frozenset[str]


@dataclass(frozen=True)
class TokenFacts:
    """A token without its secret; times are seconds since 1970."""

    id: str
    tenant: str
    scopes: tuple[str, ...]
    created: float
    expires: float | None
    revoked: float | None

    @property
    def state(self) -> str:
        """``valid``, ``expired`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= time.time() else "valid"


def add_token(
    store: Store,
    tenant: str,
    scopes: Sequence[str] = DEFAULT_SCOPES,
    days: float | None = None,
    by: str = "",
) -> str:
    """A new token of a tenant; only its digest is kept.

    Args:
        by: who makes it, for the audit; by default the user of this process.

    Raises:
        AtlasError: the tenant's name or a scope is not allowed.
    """
    if not _TENANT.fullmatch(tenant):
        raise AtlasError(
            f"{tenant!r} cannot be the name of a tenant",
            remedy="use small letters, digits and hyphens, at most 63",
        )
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise AtlasError(
            f"there is no scope {unknown[0]!r}", remedy=f"use some of {', '.join(SCOPES)}"
        )
    name, secret, salt = secrets.token_hex(8), secrets.token_hex(32), secrets.token_bytes(16)
    now = time.time()
    expires = None if days is None else now + days * DAY
    row = (name, tenant, " ".join(scopes), salt, _digest(salt, secret), now, expires, None)
    with store.writing() as db:
        db.execute("insert into tokens values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        store.audit.note(
            "token added", by or operator(), tenant=tenant, token=name, scopes=list(scopes)
        )
    return f"atlasc_{name}_{secret}"


def all_tokens(store: Store) -> list[TokenFacts]:
    """All tokens, the oldest first."""
    rows = store.rows("select * from tokens order by created")
    return [
        TokenFacts(r["id"], r["tenant"], tuple(r["scopes"].split()), r["created"], r["expires"],
                   r["revoked"])
        for r in rows
    ]  # fmt: skip


def revoke_token(store: Store, token: str) -> None:
    """End a token, named by its id or given whole. A running service refuses it from now on.

    Raises:
        AtlasError: there is no such token.
    """
    whole = _TOKEN.fullmatch(token)
    name = whole[1] if whole else token
    with store.writing() as db:
        found = db.execute(
            "update tokens set revoked = coalesce(revoked, ?) where id = ?", (time.time(), name)
        )
        if not found.rowcount:
            raise AtlasError(f"there is no token {name[:16]!r}", remedy="atlasc tokens lists them")
        (tenant,) = db.execute("select tenant from tokens where id = ?", (name,)).fetchone()
        store.audit.note("token revoked", operator(), tenant=tenant, token=name)


def note_expired(store: Store) -> None:
    """Note in the audit, once for each, which tokens have expired."""
    rows = store.rows(
        "select id, tenant from tokens where revoked is null and expires <= ?", time.time()
    )
    if not rows:
        return
    noted = store.audit.named("token expired", "token")
    for row in rows:
        if row["id"] not in noted:
            store.audit.note("token expired", "service", tenant=row["tenant"], token=row["id"])


Row = Callable[..., sqlite3.Row | None]


def find_caller(store: Store, token: str, row_of: Row | None = None) -> Caller | None:
    """The caller with this token; None if it is unknown, expired or revoked.

    Args:
        row_of: reads a row in place of :meth:`Store.row`.
    """
    given = _TOKEN.fullmatch(token)
    row = given and (row_of or store.row)("select * from tokens where id = ?", given[1])
    if not given or not row:
        return None
    right = secrets.compare_digest(_digest(row["salt"], given[2]), row["digest"])
    ended = row["revoked"] is not None or (row["expires"] or float("inf")) <= time.time()
    return Caller(row["tenant"], frozenset(row["scopes"].split())) if right and not ended else None


def _digest(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode()).digest()
