"""Templates of the files that atlasc writes: a package has them in its folder ``templates``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(package: str, **options: Any) -> Environment:
    """The templates of a package. A name that is not given is an error; a line that holds a
    statement alone leaves nothing. ``options`` are more of Jinja's.
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
