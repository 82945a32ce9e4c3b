"""The token that a demonstration gives to a visitor, and how a visitor's machine keeps it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from atlasc.files import write_private
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import Amount, Schema
from atlasc.remote.folders import data_folder
from atlasc.remote.link import Link, Refused, address, read_token
from atlasc.remote.wire import Name

Made = TypeVar("Made")
PATIENCE = 60.0
"""Seconds for which a demonstration that is full is asked again."""


class Invitation(Schema):
    """A token for a visitor of a demonstration.

    Attributes:
        seconds: how long the token is valid.
    """

    token: Name
    seconds: Amount


def with_visitor_token(
    url: str, folder: Path | None, authority: Path | None, connect: Callable[[str], Made]
) -> Made:
    """Connect with the token of an earlier visit, or with a new one if it has ended.

    Args:
        folder: where the token is kept; by default in the user's data folder.
        authority: see :class:`atlasc.remote.link.Link`.
        connect: connects with a token.

    Raises:
        AtlasError: the service gives no tokens to visitors, or has no room for one more; or as
            ``connect``.
    """
    place = (folder or data_folder("visits", url)) / "visitor.token"
    if place.exists():
        try:
            return connect(read_token(place))
        except Refused as refused:
            if refused.status != 401:
                raise
    with closing(Link(url, "", authority)) as link:
        try:
            invited = link.send(
                "POST", address("demo", "visitors"), Invitation, patience=0.0, queue=PATIENCE
            )
        except Refused as refused:
            if refused.status not in (401, 404):
                raise
            raise AtlasError(
                f"{url} gives no tokens to visitors",
                why="it was started without --demo",
                remedy="ask whoever runs it for a token, and give it with --token-file",
            ) from None
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(place, lambda draft: draft.write_text(invited.token + "\n"))
    return connect(invited.token)
