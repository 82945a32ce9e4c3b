"""The base class of passes, and their inputs: analyses of the module, and the goal of the lowering.

A pass is a frozen dataclass that declares its place in the pipeline; its fields are its options.

Metadata of a field: ``option=False`` for data that cannot be given as text; ``parse=function`` for
a text that is not read by the field's type; ``within=(least, greatest)`` for a number.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import ANALYSES, Analysis
from atlasc.ir.module import IRLevel, Module
from atlasc.ir.rewriting import with_attributes
from atlasc.ir.verifier import verify
from atlasc.passes.framework.notation import items, keys, near

MAX_CHARACTERS = 18
"""Greatest length of a number in an option."""


class Parameters(Protocol):
    """The numbers of a parameter set that the lowering needs."""

    @property
    def slots(self) -> int:
        """Number of slots of a ciphertext."""

    @property
    def max_level(self) -> int:
        """Level of a fresh ciphertext."""

    @property
    def bootstrap_level(self) -> int | None:
        """Level after a bootstrap; None without bootstraps."""

    @property
    def bootstrap_from(self) -> int:
        """Least level of a ciphertext that can be bootstrapped."""

    @property
    def bootstrap_batch(self) -> int:
        """Number of ciphertexts that one bootstrap refreshes."""

    @property
    def lanes(self) -> int:
        """``lanes`` of `PlaceBootstraps`."""

    @property
    def most_sums(self) -> int:
        """``most_sums`` of `Pack`."""

    @property
    def fewer_keys(self) -> bool:
        """``fewer_keys`` of `Pack`."""

    @property
    def narrow(self) -> int:
        """``narrow`` of `PlaceBootstraps`."""

    @property
    def landings(self) -> int:
        """``landings`` of `PlaceBootstraps`."""

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """``error`` and ``cubic`` of `PlaceBootstraps`."""


ChooseParameters = Callable[[int, int], Parameters]
"""Maps (levels of the whole program, least number of slots) to the cheapest parameter set."""


@dataclass(frozen=True)
class Goal:
    """The goal of a lowering.

    Attributes:
        parameters: the parameter set.
        costs: seconds of its primitives, see `PrimitiveCosts`. With them, bootstraps are placed for
            the least predicted time, without them for the fewest bootstraps.
    """

    parameters: Parameters
    costs: Mapping[tuple[Any, int], float] | None = None


@dataclass
class Report:
    """Notes of a pass beside its result: rewrites that were done, and why others were not."""

    lines: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)


Cost = tuple[float, int]
"""Cost of a placement of bootstraps, and levels of the program."""
When = Literal["always", "settings", "cheaper"]


class Pass:
    """A transformation of a module. ``run`` returns a new module and does not change its operand.

    The input verifies, and so does the result. The pipeline reads these declarations of the class:

    Attributes:
        name: name in pipelines; its file has the same name.
        takes, gives: IR levels of the operand (one or several) and of the result; without ``gives``
            the operand's level. A pass of the pipeline takes one level.
        needs: analyses that it reads. They are computed before it, from calibration inputs.
        keeps: analyses that also hold for its result. All others are removed from the result.
        makes: analyses that it computes itself.
        when: ``always``; ``settings``: compile applies it with the choices of a calibration or a
            search; ``cheaper``: it is kept if it makes the program cheaper, see ``pays``.
    """

    name: ClassVar[str]
    takes: ClassVar[IRLevel | tuple[IRLevel, ...]]
    gives: ClassVar[IRLevel | None] = None
    needs: ClassVar[tuple[Analysis, ...]] = ()
    keeps: ClassVar[tuple[Analysis, ...]] = ()
    makes: ClassVar[tuple[Analysis, ...]] = ()
    when: ClassVar[When] = "always"

    def __post_init__(self) -> None:
        """Refuse a number outside of its bounds, from a text or from Python."""
        for one in dataclasses.fields(self):  # type: ignore[arg-type]
            if "within" not in one.metadata:
                continue
            (least, greatest), value = one.metadata["within"], getattr(self, one.name)
            if not least <= value <= greatest:
                raise AtlasError(
                    f"option {one.name.replace('_', '-')} of pass {self.name} cannot be {value}",
                    why=f"it is {least} or more"
                    if greatest == math.inf
                    else f"it is from {least} to {greatest}",
                )

    @classmethod
    def for_goal(cls, goal: Goal) -> Pass:
        """The pass with the options that suit a goal."""
        return cls()

    def applies(self, module: Module, goal: Goal | None) -> bool:
        """Whether a pass with ``when="cheaper"`` is worth running on a module.

        Before a parameter set is chosen there is no goal.
        """
        return True

    def pays(self, cost: Cost, without: Callable[[], Cost], goal: Goal | None) -> bool:
        """Whether the result of a pass with ``when="cheaper"`` is kept.

        Args:
            cost: cost of the placement of bootstraps with the pass, and levels.
            without: gives the same without the pass; it computes a placement, so call it only if
                needed.
            goal: the goal of the lowering.
        """
        return cost < without()

    def run(self, module: Module, report: Report) -> Module:
        """The transformed module."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name}{{{self.options}}}" if self.options else self.name

    @property
    def options(self) -> str:
        """The options in the notation of a pipeline: ``levels=14,bootstrap=true``."""
        declared = [f for f in dataclasses.fields(self) if is_option(f)]  # type: ignore[arg-type]
        values = [(one.name.replace("_", "-"), getattr(self, one.name)) for one in declared]
        spelled = ((n, str(v).lower() if v in (None, True, False) else v) for n, v in values)
        return ",".join(f"{name}={value}" for name, value in spelled)


def levels_of(step: Pass | type[Pass]) -> tuple[IRLevel, ...]:
    """The IR levels that a pass takes."""
    return step.takes if isinstance(step.takes, tuple) else (step.takes,)


def is_option(declared: dataclasses.Field[Any]) -> bool:
    """Whether a field of a pass can be given in the text of a pipeline."""
    return bool(declared.metadata.get("option", True))


def run_passes(
    module: Module,
    passes: Sequence[Pass],
    *,
    after_each: Callable[[Pass, Module, Report], None] | None = None,
) -> Module:
    """Run passes in order; the verifier runs after each, and an AtlasError names the pass.

    A pass that takes another level than the module's is refused, and so is a ckks module without
    slots.
    """
    for step in passes:
        _require_level(step, module)
        report = Report()
        module = _without_stale(step.run(module, report), step)
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


def _require_level(step: Pass, module: Module) -> None:
    if module.level not in levels_of(step):
        raise AtlasError(
            f"{step.name} works on {' and '.join(levels_of(step))} modules, but @{module.name} is "
            f"at the {module.level} level",
            remedy="atlasc opt --list has the levels of each pass",
        )
    if module.level == "ckks":
        require_slots(module)


def require_slots(module: Module) -> None:
    """Raise AtlasError for a ckks module without the attribute ``slots``."""
    if "slots" not in module.attributes:
        raise AtlasError(
            f"module @{module.name} has no attribute slots",
            remedy="write {slots = 32768} after its name, or start from the output of pack",
        )


def _without_stale(module: Module, step: Pass) -> Module:
    """The module without the results of analyses that a pass does not keep."""
    stale = [one for one in ANALYSES if one not in (*step.keeps, *step.makes)]
    if not any(one.is_known(module) for one in stale):
        return module
    of_ops = {name for one in stale for name in one.of_ops}
    module = with_attributes(
        module, lambda op: {k: v for k, v in op.attributes.items() if k not in of_ops}
    )
    for name in (name for one in stale for name in one.of_module):
        module.attributes.pop(name, None)
    return module


def parse_pipeline(text: str, available: dict[str, type[Pass]]) -> list[Pass]:
    """Passes from ``pass-a,pass-b{x=1,y=text}``.

    Raises AtlasError for an unknown pass or option, or a value of the wrong type.
    """
    passes: list[Pass] = []
    for name, options in items(text, "the pipeline", "pass-a,pass-b{option=1}"):
        if name not in available:
            known = f"passes: {', '.join(sorted(available))}"
            raise AtlasError(f"there is no pass {name!r}", remedy=near(name, available) + known)
        passes.append(available[name](**_options(available[name], options)))
    return passes


def _options(kind: type[Pass], text: str) -> dict[str, Any]:
    hints = get_type_hints(kind)
    declared = {
        f.name.replace("_", "-"): f
        for f in dataclasses.fields(kind)  # type: ignore[arg-type]
        if is_option(f)
    }
    values: dict[str, Any] = {}
    for key, raw in keys(text, f"pass {kind.name}", declared, "option").items():
        name = declared[key].name
        try:
            values[name] = _value(raw, hints[name], declared[key].metadata.get("parse"))
        except ValueError:
            raise AtlasError(
                f"option {key} of pass {kind.name} cannot be {reprlib.repr(raw)}",
                why=f"it is of type {getattr(hints[name], '__name__', hints[name])}",
            ) from None
    return values


def _value(raw: str, hint: Any, parse: Callable[[str], Any] | None) -> Any:
    """The value of an option; raises ValueError for an invalid text."""
    if raw == "none" and type(None) in get_args(hint):
        return None
    if parse is not None:
        return parse(raw)
    if hint is str:
        return raw
    if len(raw) > MAX_CHARACTERS:
        raise ValueError(raw)
    number = TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False))
    return number.validate_json(raw.lower())
