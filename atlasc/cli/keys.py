"""Options in the notation of passes: ``--strategy 'atlas{generations=10}'``, ``--without prefill``.

A field of options that is declared as a key of another field (:class:`OptionFacts`) has no option
of its own, where the command has that other one too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import Any, get_type_hints

from atlasc.compilation.declared import WITHOUT, OptionFacts, choose, flag, option
from atlasc.ir.errors import AtlasError
from atlasc.passes.framework.notation import NAME, items, keys, near

Declared = Mapping[str, tuple[Field[Any], Any]]
"""Field -> how it is declared, and its type."""


def facts_of(declared: Field[Any]) -> OptionFacts:
    """How an option is declared."""
    found: OptionFacts = declared.metadata["option"]
    return found


def declared_of(group: Any) -> dict[str, tuple[Field[Any], Any]]:
    """How the fields of a group of options are declared."""
    hints = get_type_hints(group)
    return {one.name: (one, hints[one.name]) for one in fields(group)}


@dataclass(frozen=True)
class Key:
    """A key of an option.

    Attributes:
        field: name of the field whose value it is.
        declared: the field.
        kind: its type.
    """

    field: str
    declared: Field[Any]
    kind: Any

    @property
    def facts(self) -> OptionFacts:
        """How the field is declared."""
        return facts_of(self.declared)

    @property
    def name(self) -> str:
        """What stands before the ``=``."""
        return self.facts.key or self.field.replace("_", "-")

    def value(self, text: str, owner: str) -> Any:
        """The value of a text.

        Raises:
            AtlasError: the text is no value of the key.
        """
        facts, what = self.facts, f"{self.name} of {owner}"
        if facts.choices:
            return choose(what, text, facts.choices)
        number = next((one for one in (int, float) if one.__name__ in str(self.kind)), None)
        if facts.parse is not None or number is None:
            return text if facts.parse is None else facts.parse(text)
        try:
            found = number(text)
        except ValueError:
            wanted = "a whole number" if number is int else "a number"
            raise AtlasError(f"{what} cannot be {text!r}", remedy=f"give {wanted}") from None
        facts.require_bounds(what, found)
        return found


class Keyed:
    """The options of a command that take keys.

    Attributes:
        keys: field of an option, or ``without`` -> its keys by name.
    """

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self.keys: dict[str, dict[str, Key]] = {}
        for name, (one, kind) in declared.items():
            key = Key(name, one, kind)
            if key.facts.of == WITHOUT or key.facts.of in declared:
                self.keys.setdefault(key.facts.of, {})[key.name] = key

    @property
    def folded(self) -> dict[str, Key]:
        """The fields that have no option of their own."""
        return {key.field: key for own in self.keys.values() for key in own.values()}

    @property
    def without(self) -> Field[Any] | None:
        """The option ``--without``; None if nothing can be left out."""
        if WITHOUT not in self.keys:
            return None
        names = ", ".join(self.keys[WITHOUT])
        facts: dict[str, Any] = {"metavar": "NAMES", "unset": "none", "default": ()}
        return option(f"Leave out, separated by commas: {names}.", **facts)

    def spread(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A value for each field, from the values of the options.

        Raises:
            AtlasError: an option has no such key, or the key no such value.
        """
        values = {name: key.declared.default for name, key in self.folded.items()}
        values |= {name: value for name, value in given.items() if name != WITHOUT}
        for name in self._left_out(",".join(given.get(WITHOUT) or ())):
            values[name] = False
        for holder in self.keys:
            text = given.get(holder)
            if holder == WITHOUT or text == self._declared[holder][0].default:
                continue
            facts, name = facts_of(self._declared[holder][0]), str(text)
            if "{" in name:
                name, pairs = self._read(holder, name, facts)
                values |= pairs
            values[holder] = facts.parse(name) if facts.parse else name
        return values

    def _left_out(self, text: str) -> Iterator[str]:
        known = self.keys.get(WITHOUT, {})
        for name in filter(None, (piece.strip() for piece in text.split(","))):
            if name not in known:
                remedy = f"{near(name, known)}it can leave out: {', '.join(known)}"
                raise AtlasError(f"{flag(WITHOUT)} cannot leave out {name!r}", remedy=remedy)
            yield known[name].field

    def _read(self, holder: str, text: str, facts: OptionFacts) -> tuple[str, dict[str, Any]]:
        """The name in a text, and the values of its keys by field."""
        own, example = self.keys[holder], next(iter(self.keys[holder].values()))
        found = items(text, flag(holder), example.facts.spelling(example.field))
        if len(found) != 1:
            raise AtlasError(f"{flag(holder)} takes one name, not {len(found)}")
        name, rest = found[0]
        if facts.choices:
            choose(flag(holder), name, facts.choices)
        known = {
            key.name: key for key in own.values() if not facts.choices or name in key.facts.names
        }
        owner = f"{flag(holder)} {name}"
        texts = keys(rest, owner, known)
        return name, {known[key].field: known[key].value(raw, owner) for key, raw in texts.items()}

    def words(self, values: Mapping[str, Any]) -> list[str]:
        """The words of a command that gives these values; defaults are left out."""
        words: list[str] = []
        changed = {
            name: value
            for name, value in values.items()
            if value != self._declared[name][0].default
        }
        for holder, own in self.keys.items():
            mine = [key for key in own.values() if key.field in changed]
            if holder == WITHOUT:
                words += [flag(WITHOUT), ",".join(key.name for key in mine)] if mine else []
                continue
            chosen = changed.pop(holder, None)
            if mine:
                pairs = ",".join(f"{key.name}={changed[key.field]}" for key in mine)
                words += [flag(holder), f"{chosen or mine[0].facts.names[0]}{{{pairs}}}"]
            elif chosen is not None:
                words += [flag(holder), str(chosen)]
        for name, value in changed.items():
            if name not in self.folded:
                words += [flag(name)] if value is True else [flag(name), str(value)]
        return words

    def refuse_old(self, arguments: Sequence[str]) -> None:
        """Raise AtlasError for an option that has become a key, with the words to write instead."""
        old = {flag(name): (key, False) for name, key in self.folded.items()}
        switches = {key.field: key for key in self.keys.get(WITHOUT, {}).values()}
        old |= {flag(f"no_{name}"): (key, True) for name, key in switches.items()}
        said: list[str] = []
        instead: dict[str, list[str]] = {}
        words = iter(arguments)
        for word in words:
            option, equals, value = word.partition("=")
            if option == "--":
                break
            key, off = old.get(option, (None, False))
            if key is None:
                continue
            if key.facts.of != WITHOUT:
                value = value if equals else next(words, key.facts.metavar or "N")
                name = self._chosen(key, arguments)
                said.append(f"{option} {value} is now {key.facts.spelling(key.field, value, name)}")
                instead.setdefault(f"{flag(key.facts.of)} {name}", []).append(f"{key.name}={value}")
            elif off:
                said.append(f"{option} is now {key.facts.spelling(key.field)}")
                instead.setdefault(flag(WITHOUT), []).append(key.name)
            else:
                said.append(f"{option} is the default, and no option any more")
        if said:
            raise AtlasError("; ".join(said), remedy=_written(instead))

    def _chosen(self, key: Key, arguments: Sequence[str]) -> str:
        """The name that takes the key: the one in the arguments, if it has the key."""
        holder = flag(key.facts.of)
        for at, word in enumerate(arguments):
            option, equals, value = word.partition("=")
            text = value if equals else "".join(arguments[at + 1 : at + 2])
            name = re.match(NAME, text)
            facts = facts_of(self._declared[key.facts.of][0])
            if option == holder and name and (not facts.choices or name[0] in key.facts.names):
                return name[0]
        return key.facts.names[0]


def _written(options: Mapping[str, Sequence[str]]) -> str:
    """What to write: all keys of an option in one place."""
    words = []
    for place, texts in options.items():
        name, _, chosen = place.partition(" ")
        joined = ",".join(texts)
        words.append(f"{name} '{chosen}{{{joined}}}'" if chosen else f"{name} {joined}")
    return f"write {' '.join(words)}" if words else "leave it out"
