"""The reference of the passes: levels, options, contract and example of each."""

from __future__ import annotations

import dataclasses
import inspect
import posixpath
from pathlib import Path

from atlasc.passes.framework.pass_base import Pass, is_option, levels_of
from atlasc.passes.pipeline import PIPELINE
from atlasc.passes.registry import ALONE, WHEN
from documentation.markdown import GENERATED, docstring

INTRODUCTION = """\
# Passes

`atlasc opt` runs any of them alone on the text of a module, `atlasc opt -p 'my-pass{option=1}'`. \
The order is that of the pipeline; the [architecture](../architecture.md) explains it, and \
[how to write a pass](../how-to/write-a-pass.md) shows a new one. Ops are in the \
[IR reference](../ir-reference.md). The example of a pass is its test: the module before, and what \
the command in its first line prints.
"""
EXAMPLES = Path(__file__).resolve().parents[1] / "tests/passes/examples"
"""Folders by the names of passes: ``before.air``, ``after.air``, and what the options name."""
BEFORE, AFTER = "before.air", "after.air"
LANGUAGES = {".air": "mlir"}
"""Suffix of a file -> language of its block, if it is another word."""


def page() -> str:
    """All passes of this package."""
    parts = [GENERATED, INTRODUCTION]
    parts += [_pass(kind, WHEN[kind.when]) for kind in PIPELINE]
    parts += [_pass(kind, "only in `atlasc opt`") for kind in ALONE]
    return "\n".join(parts).rstrip() + "\n"


def _pass(kind: type[Pass], when: str) -> str:
    file = Path(inspect.getfile(kind)).resolve()
    at = posixpath.join("../../passes", file.relative_to(_folder()).as_posix())
    levels = ", ".join(levels_of(kind)) + ("" if kind.gives is None else f" → {kind.gives}")
    facts = [f"[source]({at})", f"level {levels}", f"runs {when}"]
    if kind.needs:
        facts.append(f"needs {', '.join(one.name for one in kind.needs)}")
    options = [
        f"`{one.name.replace('_', '-')}={getattr(kind(), one.name)}`"
        for one in dataclasses.fields(kind)  # type: ignore[arg-type]
        if is_option(one)
    ]
    if options:
        facts.append(f"options with their defaults: {', '.join(options)}")
    parts = [f"## `{kind.name}`", f"{'; '.join(facts)}.", docstring(inspect.getdoc(kind) or "")]
    parts += map(_block, example(kind))
    return "\n\n".join(parts) + "\n"


def example(kind: type[Pass]) -> list[Path]:
    """The files of a pass's example, in the order in which a reader wants them."""
    return sorted(
        (EXAMPLES / kind.name).iterdir(),
        key=lambda file: (file.name == AFTER, file.name != BEFORE, file.name),
    )


def _block(file: Path) -> str:
    language = LANGUAGES.get(file.suffix, file.suffix.removeprefix("."))
    text = file.read_text(encoding="utf-8").rstrip()
    return f"`{file.name}`:\n\n```{language}\n{text}\n```"


def _folder() -> Path:
    from atlasc.passes import registry

    return Path(registry.__file__).resolve().parent
