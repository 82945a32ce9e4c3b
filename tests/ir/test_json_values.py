"""JSON that others wrote: how much memory its faults may take."""

from __future__ import annotations

import subprocess
import sys

import pytest

from atlasc.ir.files import MIB, parse_json
from atlasc.remote.wire import MAX_VALUES, Config, Fault

MOST = 256 * MIB
"""Of 16 MiB; without a bound it was up to 10 GiB, and a minute."""
TEXTS = {
    "members": b'{"a":1' + b',"b":2' * 2_500_000 + b"}",
    "lists": b'{"programs":[[]' + b",[]" * 5_000_000 + b"]}",
    "objects": b'{"programs":[{}' + b",{}" * 5_000_000 + b"]}",
    "numbers": b'{"keys":[1' + b",1" * 8_000_000 + b"]}",
    "jobs": b"[{}" + b",{}" * 5_000_000 + b"]",
    "some jobs": b"[{}" + b",{}" * (MAX_VALUES // 2 - 2) + b"]",
    "some members": b'{"a":1' + b',"b":2' * (MAX_VALUES - 2) + b"}",
    "strings that do not end": b'"\\"' * 4_000_000,
}
READ = """
import resource, sys
from atlasc.ir.files import parse_json
from atlasc.remote.wire import MAX_VALUES, Config, JobStatus
text = sys.stdin.buffer.read()
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    parse_json(text, list[JobStatus] if sys.argv[1] == "jobs" else Config, MAX_VALUES)
except ValueError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_wrong_takes_little_memory(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ, name.split()[-1]], input=TEXTS[name], capture_output=True,
        check=True,
    )  # fmt: skip
    assert int(done.stdout) << 10 < MOST


def test_strings_are_no_values() -> None:
    found = parse_json('{"error": "a, b [c] {d} \\", \\\\", "why": ","}', Fault, 2)
    assert found.error == 'a, b [c] {d} ", \\'
    with pytest.raises(ValueError, match="more than 1 values"):
        parse_json('{"error": "a", "why": ","}', Fault, 1)


def test_a_list_is_read_up_to_its_first_fault() -> None:
    with pytest.raises(ValueError, match=r"^0: Input should"):
        parse_json("[1, 2, 3]", list[str])
    with pytest.raises(ValueError, match="atlasc: Field required"):
        parse_json('{"programs": [1, 2]}', Config)
