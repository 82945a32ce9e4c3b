"""JSON is read into its schema, and into nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, JsonValue

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import Schema, parse_json, read_json


class Small(Schema):
    count: Annotated[int, Field(ge=1, le=10)]
    names: tuple[str, ...] = ()
    share: float = 0.0
    facts: dict[str, JsonValue] = Field(default_factory=dict)


def test_what_fits_is_read() -> None:
    text = '{"count": 2, "names": ["a", "b"], "share": 1, "facts": {"x": [1, {"y": null}]}}'
    assert parse_json(text, Small) == Small(
        count=2, names=("a", "b"), share=1.0, facts={"x": [1, {"y": None}]}
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Invalid JSON"),
        ("[]", "should be an object"),
        ("{}", "count: Field required"),
        ('{"count": "2"}', "count: .* integer"),
        ('{"count": true}', "count: .* integer"),
        ('{"count": 2.0}', "count: .* integer"),
        ('{"count": 0}', "count: .* greater"),
        ('{"count": ' + "9" * 5000 + "}", "out of range"),
        ('{"count": 2, "more": 1}', "more: .* not permitted"),
        ('{"count": 2, "count": 3}', "given twice"),
        ('{"count": 2, "facts": {"a": {"b": 1, "b": 2}}}', "given twice"),
        ('{"count": 2, "share": NaN}', "share: "),
        ('{"count": 2, "share": Infinity}', "share: "),
        ('{"count": 2, "share": 1e999}', "share: "),
        ('{"count": 2, "facts": {"a": NaN}}', "NaN is not a JSON number"),
        ('{"count": 2, "facts": {"a": 1e999}}', "1e999 is too large"),
        ('{"count": 2, "facts": {"a": ' + "9" * 5000 + "}}", "."),
        ('{"count": 2, "facts": {"a": ' + "[" * 9000 + "]" * 9000 + "}}", "."),
        ("[" * 100_000, "."),
        ('{"count": 2, "names": ["\\ud800"]}', "."),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_json(text, Small)
    assert len(str(refused.value).splitlines()) == 1
    (tmp_path / "file").write_text(text)
    with pytest.raises(AtlasError, match="the small one .* cannot be read") as error:
        read_json(tmp_path / "file", Small, "the small one", 10**6, remedy="write it again")
    assert error.value.remedy == "write it again"


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError, match="Invalid JSON"):
        parse_json(b'{"count": 2, "names": ["\xff"]}', Small)
