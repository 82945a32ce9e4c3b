"""Parameters of commands: options that are declared as in :mod:`atlasc.compilation.options`.

A parameter whose default is an :func:`option` becomes an option of the command. A parameter whose
type is a dataclass of such fields becomes a whole group of options::

    def calibrate(model: Model, options: CalibrationOptions, output: Path = required("...")): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli.keys import Keyed, declared_of, facts_of
from atlasc.cli.output import silenced, warn
from atlasc.compilation.declared import WITHOUT, flag, long_option, option, switch
from atlasc.ir.errors import AtlasError
from atlasc.targets import DEFAULT, target_names

if TYPE_CHECKING:
    from atlasc.bundle.folder import Bundle
    from atlasc.loading.inputs import Inputs

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="HuggingFace directory or name in the local cache, .gguf file, .pt2 archive or .pt "
        "file.",
    ),
]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder that compile wrote.")]
INPUT_FILES = (
    ".txt, .jsonl, .csv, .tsv, .parquet, .npz, a datasets folder, an image, a recording (.wav, "
    ".flac), or a folder of"
)


def required(help: str, *flags: str) -> Any:
    """An option that must be given: the default of a command's parameter."""
    return option(help, *flags, default=MISSING)


DATA = required(f"Inputs: {INPUT_FILES} them.")
FOLDER = required("New folder to write.", "--output", "-o")
FILE = required("New file to write.", "--output", "-o")
TARGET = option("Target to use.", default="", unset="the one that the bundle was compiled for")
FOR_TARGET = option(f"What the program is for: {', '.join(target_names())}.", default=DEFAULT)
STRICT = switch("Refuse all inputs if one is unsafe, instead of leaving it out.")
UNCHECKED = switch(
    "Accept unsafe inputs, and show answers far outside the outputs seen in calibration."
)
JSON = switch("Print JSON on standard output.", "--json")
QUIET = switch("Show no progress and no tables; warnings, errors and JSON are shown.", "-q")
HELP_ALL = switch("Show all options in full, with their keys, and exit.")
"""Every command has these two; see :func:`expanded`."""


@dataclass(frozen=True, kw_only=True)
class IndexedInputs:
    """Inputs of a file, by their numbers."""

    data: Path = option(f"Inputs: {INPUT_FILES} them.", "--input", default=MISSING)
    long: str = long_option()
    index: str = option(
        "Take these inputs of the file, counted from 0: 0,1,5 or 3-7.", default="", unset="all"
    )

    def load(self, bundle: Bundle) -> Inputs:
        """The chosen inputs in the shape of the program; all inputs without a choice.

        A warning says which texts were cut. A row without an input becomes a fault of the inputs.

        Raises:
            AtlasError: the file cannot be read, or ``index`` is no number or not in the file.
        """
        return bundle.load_inputs(self.data, self.long, partial=True, choice=self.choice).tell(warn)

    @property
    def choice(self) -> Callable[[int], Sequence[int]]:
        """Which inputs are wanted, in the form that :func:`atlasc.loading.data.inputs_of` takes."""
        return self._numbers if self.index else range

    def _numbers(self, count: int) -> list[int]:
        from atlasc.ir.files import whole_number

        wanted: list[int] = []
        for part in self.index.split(","):
            first, dash, last = map(str.strip, part.partition("-"))
            start, end = whole_number(first), whole_number(last if dash else first)
            if start is None or end is None or end < start:
                raise AtlasError(
                    f"--index {self.index} is not a list of numbers", remedy="write it as 0,1,5-7"
                )
            if end >= count:
                raise AtlasError(
                    f"--index {self.index} chooses inputs that the file does not have",
                    why=f"it has the inputs 0 to {count - 1}",
                )
            wanted += range(start, end + 1)
        return wanted


@dataclass(frozen=True, kw_only=True)
class InputOptions(IndexedInputs):
    """Inputs of a file, by their numbers or the first ones."""

    count: int | None = option("Take the first inputs of the file.", minimum=1, unset="all")

    @property
    def choice(self) -> Callable[[int], Sequence[int]]:
        """See the base class."""
        if self.count is None:
            return super().choice
        if self.index:
            raise AtlasError("--index and --count exclude each other", remedy="give one of them")
        return self._first

    def _first(self, count: int) -> range:
        wanted = self.count or count
        if wanted > count:
            raise AtlasError(f"--count {wanted}, but the file has {count} inputs")
        return range(wanted)


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with one typer option for each option, and for each field of its groups.

    What is declared as a key of another option has no option of its own. The result's attribute
    ``declared`` says how each field is declared, and ``keyed`` which options take keys.
    """
    groups: dict[str, Any] = {}
    plain: dict[str, inspect.Parameter] = {}
    declared: dict[str, tuple[Field[Any], Any]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if is_dataclass(kind):
            groups[parameter.name] = kind
            declared = declared_of(kind) | declared
        elif isinstance(parameter.default, Field):
            declared[parameter.name] = parameter.default, kind
        else:
            plain[parameter.name] = parameter
    keyed = Keyed(declared)
    seen = {name: one for name, one in declared.items() if name not in keyed.folded}
    if keyed.without is not None:
        seen[WITHOUT] = keyed.without, list[str]
    seen["quiet"] = QUIET, bool
    shown = [*plain.values()]
    shown += [_parameter(name, *one, name in keyed.keys) for name, one in seen.items()]
    shown.append(_parameter("help_all", HELP_ALL, bool, False, is_eager=True, callback=_print_all))

    @functools.wraps(command)
    def call(**values: Any) -> Any:
        values.pop("help_all")
        quiet = values.pop("quiet")
        values = keyed.spread(values)
        made = {
            name: kind(**{one.name: values.pop(one.name) for one in fields(kind)})
            for name, kind in groups.items()
        }
        with silenced() if quiet else nullcontext():
            return command(**values, **made)

    # Python wants parameters without a default first.
    ordered = sorted(shown, key=lambda p: p.default is not inspect.Parameter.empty)
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in ordered]
    )
    call.__annotations__ = {p.name: p.annotation for p in ordered}
    call.declared, call.keyed = seen, keyed  # type: ignore[attr-defined]
    return call


def _print_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.command.everything = True  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


def _parameter(
    name: str, declared: Field[Any], hint: Any, keyed: bool, **more: Any
) -> inspect.Parameter:
    """The option of a field. One that takes keys is read by :class:`Keyed`."""
    facts = facts_of(declared)
    long = () if any(one.startswith("--") for one in facts.flags) else (flag(name),)
    option = typer.Option(
        *long,
        *facts.flags,
        help=facts.help,
        min=facts.minimum,
        metavar=facts.metavar,
        parser=None if keyed else facts.parse,
        **more,
    )
    default = inspect.Parameter.empty if declared.default is MISSING else declared.default
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option]
    )
