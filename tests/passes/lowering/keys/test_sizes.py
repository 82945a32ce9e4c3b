"""Sizes of memory as people write them."""

from __future__ import annotations

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.keys.sizes import parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("4G", 4 << 30), ("512M", 512 << 20), ("1.5 GiB", 3 << 29), ("10kb", 10240), ("7", 7)],
)
def test_what_is_a_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "4X", "-1G", "four", "1e9"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(AtlasError, match="is not a size of memory"):
        parse_size(text)


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 827_000_000, 1 << 30, 4_400_000_001])
def test_what_is_printed_suffices_when_it_is_given(size: int) -> None:
    assert size <= parse_size(size_text(size)) <= size * 1.1 + (1 << 20)


def test_a_size_without_end() -> None:
    with pytest.raises(AtlasError, match="is not a size of memory"):
        parse_size("9" * 5000)
