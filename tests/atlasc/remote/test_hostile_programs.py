"""Each attribute of the client's modules, one by one: the client refuses what a hostile bundle says
in it, or sends as much as before, and in the clear the mask alone.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atlasc
from atlasc.api.roles import make_keys
from atlasc.bundle.folder import load_bundle
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from tests.atlasc.remote.hostile import forged, inner_text
from tests.atlasc.remote.test_hostile_service import EMBED, INTERFACE

pytestmark = pytest.mark.filterwarnings("ignore:the target sim is a simulation")
ESCAPE = "\x1b[2J"
TOKENS = np.array([[3, 4, 5, 6, 7, 8]])
IDS = {"input_ids": TOKENS, "attention_mask": 0 * TOKENS + 1, "token_type_ids": 0 * TOKENS}
CHANGES: dict[type, tuple[Callable[[Any], Any], ...]] = {
    bool: (lambda value: not value,),
    int: (lambda _: -1, lambda value: value + 1, lambda _: 2**40),
    float: (lambda _: 0.0, lambda _: -1.0, lambda _: 1e300),
    str: (lambda _: ESCAPE, lambda _: "../x", lambda text: text[:-1]),
    list: (lambda _: [], lambda many: many * 1000, lambda _: [2**40, 2**40]),
}
"""What a hostile bundle says in place of a value; other values become each of these kinds."""


def places(module: Module) -> Iterator[tuple[int, str]]:
    """Number of an op, or -1 for the module, and the name of an attribute."""
    for number, attributes in enumerate([module.attributes, *(op.attributes for op in module.ops)]):
        yield from ((number - 1, name) for name in attributes)


def changed_interface(text: str) -> Iterator[tuple[str, str]]:
    """The JSON text with another value of each member, and the path of it."""

    def members(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in list(inside)[:20]:
            yield (*path, name)
            if isinstance(one, (dict, list)):
                yield from members(one, (*path, name))

    for path in members(json.loads(text), ()):
        (*parents, name), whole = path, json.loads(text)
        place = functools.reduce(operator.getitem, parents, whole)
        known = place[name]
        for change in CHANGES.get(type(known), (lambda _: ESCAPE, lambda _: 2**40, lambda _: [])):
            place[name] = change(known)
            yield ".".join(map(str, path)), json.dumps(whole)


def changed_module(text: str) -> Iterator[tuple[str, str]]:
    """The module with other values of each attribute, and the place of it."""
    for number, name in places(parse(text)):
        for edited in changed(text, number, name):
            yield f"{number} {name}", edited


def changed(text: str, number: int, name: str) -> Iterator[str]:
    """The module with other values of an attribute, as far as they can be written."""
    known = parse(text)
    value = (known.attributes if number < 0 else known.ops[number].attributes)[name]
    for change in CHANGES.get(type(value), (lambda _: ESCAPE, lambda _: 2**40, lambda _: [])):
        module = parse(text)
        attributes = module.attributes if number < 0 else module.ops[number].attributes
        attributes[name] = change(value)
        try:
            yield print_module(module)
        except (AtlasError, AttributeError, TypeError, ValueError):  # no text says so
            continue


@pytest.mark.parametrize(
    ("name", "edits"), [(INTERFACE, changed_interface), (EMBED, changed_module)]
)
def test_each_attribute(
    text_bundle: Path,
    tmp_path: Path,
    name: str,
    edits: Callable[[str], Iterator[tuple[str, str]]],
) -> None:
    keys = tmp_path / "keys"
    make_keys(load_bundle(text_bundle, "client"), keys)
    honest = load_bundle(text_bundle, "client").client.query(IDS)
    size = len(atlasc.Client(text_bundle, keys).encrypt(IDS))
    path, refusals = text_bundle / name, list[str]()
    text = inner_text(path) if name == INTERFACE else path.read_text()
    for at, (where, edited) in enumerate(edits(text)):
        if edited == text:
            continue
        bundle = forged(text_bundle, tmp_path / str(at), {name: lambda _, edited=edited: edited})
        try:
            packed = load_bundle(bundle, "client").client.query(IDS)
            query = atlasc.Client(bundle, keys).encrypt(IDS)
        except AtlasError as error:
            refusals.append(error.render())
            continue
        assert packed.public.keys() <= {"attention_mask"} == honest.public.keys()
        for mask, sent in packed.public.items():
            assert np.array_equal(sent, honest.public[mask])
        assert len(query) <= size + 1000, f"{where} {edited}"
    assert len(refusals) > 10
    assert [one for one in refusals if "\x1b" in one] == []
