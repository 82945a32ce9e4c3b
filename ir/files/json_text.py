"""Reads JSON from untrusted files into a declared schema.

A schema is a subclass of :class:`Schema`: pydantic checks types, bounds and names, and refuses
unknown members. Members that are given twice, numbers that are not finite, and unlimited integers
and nesting are refused too, although JSON allows them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.plain import read_bytes

Read = TypeVar("Read")


STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
"""The ``__pydantic_config__`` of a dataclass that is a schema too."""


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A digest in hexadecimal."""


class Schema(BaseModel):
    """What a JSON object must look like: exactly these members, of exactly these types."""

    model_config = STRICT


Count = Annotated[int, Field(ge=0, le=2**53)]
"""An integer that a number of JSON holds exactly."""
Amount = Annotated[float, Field(ge=0)]


def read_json(
    path: Path, schema: type[Read], what: str, limit: int, *, remedy: str = "", links: bool = True
) -> Read:
    """The content of a JSON file.

    Args:
        path: the file.
        schema: a :class:`Schema`, or another type that pydantic knows.
        what: what the file is, for messages: "the front".
        limit: bytes that it has at most.
        remedy: for messages.
        links: see :func:`atlasc.ir.files.plain.open_plain`.

    Raises:
        AtlasError: it cannot be read, or does not have the schema.
    """
    try:
        return parse_json(read_bytes(path, limit, links=links), schema)
    except ValueError as error:
        raise AtlasError(f"{what} {path} cannot be read", why=str(error), remedy=remedy) from None


def parse_json(text: str | bytes, schema: type[Read]) -> Read:
    """The value of a JSON text.

    Raises:
        ValueError: in one line, where the text breaks the schema.
    """
    try:
        value: Read = _adapter(schema).validate_json(text)
        json.loads(text, object_pairs_hook=_unique, parse_constant=_number, parse_float=_number)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        raise ValueError(f"{place}{first['msg']}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every value of a JSON tree that is neither object nor array, with the name of its member.

    Names of members are given too, under an empty name.
    """
    left = [("", tree)]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += (*value.items(), *(("", key) for key in value))
        elif isinstance(value, list):
            left += ((name, item) for item in value)
        else:
            yield name, value


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Cached, because making an adapter takes time."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is given twice")
    return members


def _number(text: str) -> float:
    if text in ("NaN", "Infinity", "-Infinity"):
        raise ValueError(f"{text} is not a number of JSON")
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large for a number")
    return value
