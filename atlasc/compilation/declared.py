"""How options are declared: fields of dataclasses with a help text and a parser.

The module imports no library at its top level.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any, TypeVar

from atlasc.bundle import PROGRAM_NAME
from atlasc.ir.errors import AtlasError
from atlasc.loading import LONG
from atlasc.passes.framework.notation import near
from atlasc.passes.lowering.keys.sizes import parse_size

Group = TypeVar("Group")
Call = TypeVar("Call", bound=Callable[..., Any])
ALL_MEMORY = float("inf")
"""A key memory without a limit."""
RANGES_FROM = ("measured", "certified")
MEASURES = ("class", "tokens", "values")
"""See `atlasc.simulation.agreement`."""
WITHOUT = "without"
HEADS = ("client", "server")
"""Who computes the head of a decoder that generates text."""


@dataclass(frozen=True)
class OptionFacts:
    """How the command line shows an option.

    Attributes:
        help: the help text. Its first sentence stands alone in the short help.
        flags: names of the option; if empty, ``--`` and the field's name with hyphens.
        unset: what the help says of a default that is no value of the option, such as None.
        section: section of the command's help.
        metavar: stands for the value in the help; choices are separated by ``|``.
        minimum: smallest allowed value.
        below: all allowed values are smaller.
        parse: turns the text on the command line into the value.
        of: the field of another option of which this one is a key, as in ``--of 'name{key=1}'``;
            `WITHOUT` for a switch that ``--without`` turns off.
        names: the names in the notation that have the key, an example first. Where the other
            option has no fixed choices, every name has it.
        key: the key; if empty, the field's name with hyphens.
    """

    help: str
    flags: tuple[str, ...] = ()
    unset: str = ""
    section: str | None = None
    metavar: str | None = None
    minimum: float | None = None
    below: float | None = None
    parse: Callable[[str], Any] | None = None
    of: str = ""
    names: tuple[str, ...] = ()
    key: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that the value can be; empty if it is no choice among words."""
        words = tuple((self.metavar or "").split("|"))
        return words if len(words) > 1 and all(map(str.islower, words)) else ()

    @property
    def told(self) -> str:
        """The help text for who sees the default's value, which may need words."""
        return f"{self.help} [default: {self.unset}]" if self.unset else self.help

    def shown_default(self, default: Any) -> str:
        """The default in the words of the help; empty if the option must be given."""
        if default is MISSING:
            return ""
        if isinstance(default, bool):
            return self.unset or ("on" if default else "off")
        return self.unset or ("none" if default in (None, "") else str(default))

    def require_bounds(self, what: str, value: Any) -> None:
        """Raise AtlasError for a number out of bounds; ``what`` names the option."""
        if value is None or self.minimum is None:
            return
        number = isinstance(value, int | float)
        if not number or not self.minimum <= value < (self.below or inf):
            below = f", and less than {self.below}" if self.below else ""
            raise AtlasError(
                f"{what} cannot be {value!r}", remedy=f"use {self.minimum} or more{below}"
            )

    def title(self, name: str) -> str:
        """What messages call the field of a name: ``--seed``, or ``fits of --space``."""
        if not self.of:
            return flag(name)
        if self.of == WITHOUT:
            return self.spelling(name)
        return f"{self.key or name.replace('_', '-')} of {flag(self.of)}"

    def spelling(self, name: str, value: str = "", chosen: str = "") -> str:
        """How the command line spells a value of the field of a name.

        Args:
            name: the field.
            value: the text of the value; if empty, what stands for it in the help.
            chosen: the name before the braces; if empty, one that has the key.
        """
        key, value = self.key or name.replace("_", "-"), value or self.metavar or "N"
        if not self.of:
            return f"{flag(name)} {value}"
        if self.of == WITHOUT:
            return f"{flag(WITHOUT)} {key}"
        return f"{flag(self.of)} '{chosen or self.names[0]}{{{key}={value}}}'"


def option(help: str, *flags: str, default: Any = None, **facts: Any) -> Any:
    """A field that is an option; ``facts`` are further fields of :class:`OptionFacts`."""
    return field(default=default, metadata={"option": OptionFacts(help, flags, **facts)})


def switch(help: str, *flags: str, **facts: Any) -> Any:
    """An option that is off unless its flag is given."""
    return option(help, *flags, default=False, **facts)


def without(help: str, **facts: Any) -> Any:
    """A field that is on unless ``--without`` names it."""
    return option(help, default=True, of=WITHOUT, **facts)


def choose(name: str, value: str, known: Any) -> str:
    """The value, if it is a known choice; raises AtlasError otherwise."""
    if value not in known:
        remedy = f"{near(value, known)}use one of {', '.join(known)}"
        raise AtlasError(f"{name} cannot be {value!r}", remedy=remedy)
    return value


@dataclass(frozen=True)
class Options:
    """Base of all groups of options. Raises AtlasError for a number that is out of bounds."""

    def __post_init__(self) -> None:
        for f in fields(self):
            facts: OptionFacts = f.metadata["option"]
            facts.require_bounds(facts.title(f.name), getattr(self, f.name))


def documented(group: type[Group]) -> type[Group]:
    """A group of options; the help of each option is appended to its docstring."""
    lines = [f"    {f.name}: {f.metadata['option'].told}" for f in fields(group)]  # type: ignore[arg-type]
    group.__doc__ = "\n".join([group.__doc__ or "", "", "Attributes:", *lines])
    return group


def takes_options(group: type) -> Callable[[Call], Call]:
    """Shows the options that a function takes as ``**changes``, with their types and defaults: in
    its signature, which editors and notebooks read, and in its help.
    """

    def shown(call: Call) -> Call:
        signature = inspect.signature(call)
        kinds = inspect.Parameter
        own = [p for p in signature.parameters.values() if p.kind is not kinds.VAR_KEYWORD]
        lines = []
        for f in fields(group):
            own.append(kinds(f.name, kinds.KEYWORD_ONLY, default=f.default, annotation=f.type))
            facts: OptionFacts = f.metadata["option"]
            told = f"{f.name} ({f.type}): {facts.told}"
            if facts.of:
                told += f" On the command line it is {facts.spelling(f.name)}."
            lines += textwrap.wrap(
                told, 100, initial_indent=" " * 8, subsequent_indent=" " * 12,
                break_on_hyphens=False,
            )  # fmt: skip
        call.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        head, raises, tail = (call.__doc__ or "").partition("\n\n    Raises:")
        call.__doc__ = "\n".join([head, *lines]) + raises + tail
        return call

    return shown


def flag(name: str) -> str:
    """The option of a field that is no key: ``--max-error``."""
    return f"--{name.replace('_', '-')}"


def title(group: Any, name: str) -> str:
    """What messages call an option of a group: ``--max-error``, or ``fits of --space``."""
    found = next(f for f in fields(group) if f.name == name)
    return str(found.metadata["option"].title(name))


def given(options: Any, group: type, but: str = "") -> list[str]:
    """Names of the options that were set to another value than the default.

    Only the options that ``group`` adds to its base classes are looked at.

    Args:
        options: an instance of the group.
        group: a class of options.
        but: an option that does not count, nor do its keys.
    """
    return [
        f.name
        for f in fields(group)
        if f.name in group.__annotations__
        and not (but and but in (f.name, f.metadata["option"].of))
        and getattr(options, f.name) != f.default
    ]


def options_of(kind: type[Group], values: Mapping[str, Any], base: Group | None = None) -> Group:
    """A group of options from values by name; texts are parsed as on the command line.

    Args:
        kind: the class of the group.
        values: values by the name of the field; None for the default.
        base: options to change; None starts from the defaults.

    Raises:
        AtlasError: there is no such option, or a text cannot be parsed.
    """
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    parsed = {}
    for name, value in values.items():
        if name not in known:
            remedy = near(name, known).strip() or f"use some of {', '.join(known)}"
            raise AtlasError(f"there is no option {name!r}", remedy=remedy)
        parse = known[name].metadata["option"].parse
        if isinstance(value, str) and (parse or known[name].type == "Path | None"):
            value = (parse or Path)(value)
        parsed[name] = known[name].default if value is None else value
    return kind(**parsed) if base is None else replace(base, **parsed)  # type: ignore[type-var]


def parse_memory(text: str) -> float:
    """Bytes of ``4G``, or infinity for ``all``; raises AtlasError for anything else."""
    return ALL_MEMORY if text == "all" else parse_size(text)


def parse_long(text: str) -> str:
    """One of ``LONG``; raises AtlasError for anything else."""
    return choose("--long", text, LONG)


def parse_ranges(text: str) -> str:
    """One of ``RANGES_FROM``; raises AtlasError for anything else."""
    return choose("--ranges", text, RANGES_FROM)


def parse_share(text: str) -> float:
    """The share of ``0.1%`` or ``0.001``; raises AtlasError for anything else."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = nan
    if not isfinite(share):
        raise AtlasError(f"{text!r} is not a share", remedy="write 0.1% or 0.001")
    return share


def parse_measure(text: str) -> str:
    """One of ``MEASURES``; raises AtlasError for anything else."""
    return choose("--measure", text, MEASURES)


def parse_name(text: str) -> str:
    """The name of a program: a segment of an address, and a label of a figure."""
    if not re.fullmatch(PROGRAM_NAME, text):
        raise AtlasError(
            f"--name cannot be {text[:80]!r}",
            why="it is a part of addresses, and of figures",
            remedy="use letters, digits, '.', '_' and '-', at most 64, a letter or a digit first",
        )
    return text


def parse_head(text: str) -> str:
    """One of ``HEADS``; raises AtlasError for anything else."""
    return choose("--head", text, HEADS)


long_option = partial(
    option,
    "Texts that are too long: cut at the end, split into inputs, or refuse.",
    default=LONG[0],
    metavar="|".join(LONG),
    parse=parse_long,
)
