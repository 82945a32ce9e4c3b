"""What a pass is: a frozen dataclass with a name; its fields are its command-line options.

Metadata of a field: ``option=False`` for data that a text cannot give, which is no option;
``parse=function`` to read the option's text otherwise than by the field's type.
"""

from __future__ import annotations

import dataclasses
import math
import re
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args, get_type_hints

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.verifier import verify

MAX_DIGITS = 18
"""Of an option that is an integer."""
_ITEM = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(?:\{([^{}]*)\})?\s*(?:,|$)")


@dataclass
class Report:
    """What a pass tells beside its result: rewrites done, and why others did not fire."""

    lines: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)


class Pass:
    """A transformation of a module. ``run`` returns a new module and leaves its operand alone.

    The input verifies, and so does the result.
    """

    name: ClassVar[str]

    def run(self, module: Module, report: Report) -> Module:
        """The transformed module."""
        raise NotImplementedError

    def __str__(self) -> str:
        options = ",".join(
            f"{f.name.replace('_', '-')}={option_text(getattr(self, f.name))}"
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if f.metadata.get("option", True)
        )
        return f"{self.name}{{{options}}}" if options else self.name


def option_text(value: Any) -> str:
    """The value of an option as a pipeline spells it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def run_passes(
    module: Module,
    passes: Sequence[Pass],
    *,
    after_each: Callable[[Pass, Module, Report], None] | None = None,
) -> Module:
    """Run passes in order; the verifier runs after each.

    Raises:
        AtlasError: of a pass, or of the verifier with the name of the pass before it.
    """
    for step in passes:
        report = Report()
        module = step.run(module, report)
        try:
            verify(module)
        except AtlasError as error:
            raise AtlasError(
                f"after {step.name}: {error.what}",
                where=error.where,
                remedy="this is a bug in the pass; please report it with the module's text",
            ) from None
        if after_each is not None:
            after_each(step, module, report)
    return module


def parse_pipeline(text: str, available: dict[str, type[Pass]]) -> list[Pass]:
    """Passes from ``pass-a,pass-b{x=1,y=text}``.

    Raises:
        AtlasError: unknown pass or option, or a value of the wrong type.
    """
    passes: list[Pass] = []
    position = len(text) - len(text.lstrip())
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None or match.end() == position:
            raise AtlasError(
                f"cannot read the pipeline at {text[position:]!r}",
                where=f"column {position + 1} of {text!r}",
                remedy="write pass-a,pass-b{option=1}",
            )
        name, options = match[1], match[2] or ""
        if name not in available:
            raise AtlasError(
                f"there is no pass {name!r}", remedy=f"passes: {', '.join(sorted(available))}"
            )
        passes.append(_make(available[name], options))
        position = match.end()
    if text.rstrip().endswith(","):
        raise AtlasError("the pipeline ends with a comma", where=f"column {len(text.rstrip())}")
    return passes


def _make(kind: type[Pass], options: str) -> Pass:
    hints = get_type_hints(kind)
    declared = dataclasses.fields(kind)  # type: ignore[arg-type]
    fields = {f.name: f.metadata for f in declared if f.metadata.get("option", True)}
    values: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in options.split(","))):
        key, _, raw = part.partition("=")
        name = key.strip().replace("-", "_")
        if name not in fields:
            raise AtlasError(
                f"pass {kind.name} has no option {key.strip()!r}",
                remedy=f"its options: {', '.join(sorted(fields)) or 'none'}",
            )
        if name in values:
            raise AtlasError(f"option {name} of pass {kind.name} is given twice")
        values[name] = _convert(kind, name, raw.strip(), hints[name], fields[name].get("parse"))
    return kind(**values)


def _convert(
    kind: type[Pass], name: str, raw: str, hint: Any, parse: Callable[[str], Any] | None
) -> Any:
    kinds = get_args(hint) or (hint,)
    try:
        if raw == "none" and type(None) in kinds:
            return None
        if parse is not None:
            return parse(raw)
        if bool in kinds:
            return {"true": True, "false": False}[raw.lower()]
        if int in kinds:
            return _integer(raw)
        if float in kinds:
            return _finite(raw)
    except (KeyError, ValueError):
        raise AtlasError(
            f"option {name} of pass {kind.name} cannot be {reprlib.repr(raw)}",
            why=f"it is of type {getattr(hint, '__name__', hint)}",
        ) from None
    return raw


def _integer(raw: str) -> int:
    if len(raw) > MAX_DIGITS:
        raise ValueError(raw)
    return int(raw)


def _finite(raw: str) -> float:
    value = float(raw)
    if not math.isfinite(value):
        raise ValueError(raw)
    return value
