"""What a message takes from the errors of libraries."""

from __future__ import annotations

import pytest

from atlasc.ir.errors import AtlasError, explained, first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no number\nat line 2"), "no number"),
        (ValueError("\n  no number\n"), "no number"),
        (ValueError(""), "ValueError"),
        (TypeError("in field 'size':\n    expected int, got float"),
         "in field 'size': expected int, got float"),
        (ValueError("in field 'size':"), "in field 'size':"),
        (KeyError("banana"), "KeyError: 'banana'"),
    ],
)  # fmt: skip
def test_the_line_that_says_why(error: Exception, line: str) -> None:
    assert first_line(error) == line
    with pytest.raises(AtlasError) as caught, explained("it cannot be read"):
        raise error
    assert caught.value.why == line
