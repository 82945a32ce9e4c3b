"""Templates of the files that atlasc writes: a package has them in its folder ``templates``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(package: str, **options: Any) -> Environment:
    """The Jinja templates of a package.

    A name that a template uses and nobody gave is an error. A line that holds only a statement
    leaves no line in the output. ``options`` are further options of ``jinja2.Environment``.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        **options,
    )
