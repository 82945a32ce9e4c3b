"""``--index`` and ``--count``: which inputs of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from pathlib import Path

    from atlasc.bundle.folder import Bundle
    from atlasc.loading.inputs import Inputs


def selected(bundle: Bundle, data: Path, index: str, count: int | None) -> Inputs:
    """The chosen inputs of a file, in the shape of the program; see :func:`select`."""
    return select(bundle.load_inputs(data), index, count)


def select(inputs: Inputs, index: str, count: int | None) -> Inputs:
    """The chosen inputs; all without a choice.

    Raises:
        AtlasError: both options, an index that is no number, or one that the file does not have.
    """
    if index and count is not None:
        raise AtlasError("--index and --count exclude each other", remedy="give one of them")
    if count is not None:
        if count > len(inputs):
            raise AtlasError(f"--count {count}, but the file has {len(inputs)} inputs")
        return inputs.take(range(count))
    if not index:
        return inputs
    wanted: list[int] = []
    for part in index.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise AtlasError(f"--index {index} is no list of numbers", remedy="write it as 0,1,5-7")
        wanted += range(int(first), int(last or first) + 1)
    outside = [row for row in wanted if row >= len(inputs)]
    if outside or not wanted:
        raise AtlasError(
            f"--index {index} chooses inputs that the file does not have",
            why=f"it has the inputs 0 to {len(inputs) - 1}",
        )
    return inputs.take(wanted)
