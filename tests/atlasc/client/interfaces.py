"""Interfaces of programs that differ from those that a compiler writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from atlasc.bundle.folder import Bundle
from atlasc.runtime.interface import Interface, keys_of
from atlasc.runtime.native import load_library

_ROWS = {"inputs": "EncryptedInput", "publics": "PublicInput", "outputs": "Output"}
_COMPUTED = {"ciphertexts"}


def with_rows(interface: Interface, **rows: list[dict[str, Any]]) -> Interface:
    """The same with other inputs, public inputs or outputs, each by the names of its members."""
    library, keys = load_library(), keys_of(interface)
    relinearization, conjugation = keys.other_levels
    made = {
        part: [getattr(library, kind)(**one) for one in rows.get(part, rows_of(interface, part))]
        for part, kind in _ROWS.items()
    }
    found: Interface = library.Interface(
        model=interface.model, identity=interface.identity, rotations=keys.rotations,
        relinearization_level=relinearization, conjugation_level=conjugation,
        derivation=interface.derivation, **made,
    )  # fmt: skip
    return found


def rows_of(interface: Interface, part: str) -> list[dict[str, Any]]:
    """The inputs, public inputs or outputs by the names of their members."""
    rows = getattr(interface, part)
    names = [[n for n in dir(one) if n[0] != "_" and n not in _COMPUTED] for one in rows]
    return [{n: getattr(one, n) for n in of} for one, of in zip(rows, names, strict=True)]


def change(bundle: Bundle, part: str, **members: Any) -> None:
    """Change members of the first row of a part, for this opened bundle."""
    first, *others = rows_of(bundle.client.interface, part)
    give(bundle, with_rows(bundle.client.interface, **{part: [{**first, **members}, *others]}))


def give(bundle: Bundle, interface: Interface) -> None:
    """Another interface for this opened bundle."""
    client = replace(bundle.client, interface=interface)
    vars(bundle).update(_clients=interface, interface=interface, client=client)
