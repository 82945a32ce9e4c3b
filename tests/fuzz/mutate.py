"""Seeded mutations of bytes, and which mutations suit which kind of file.

A mutator takes a random generator, the bytes of a valid file and those of another one, and returns
bytes that are close to the first. What it returns is decided by the generator alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.fuzz import mutate_archives, mutate_json, mutate_text
from tests.fuzz.content import Content, Link

Mutator = Callable[[Random, bytes, bytes], bytes]

NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def flip(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change up to eight bits."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: Random, data: bytes, other: bytes) -> bytes:
    """Cut the end off."""
    return data[: rng.randrange(len(data))]


def insert(rng: Random, data: bytes, other: bytes) -> bytes:
    """Put random bytes somewhere."""
    at = rng.randint(0, len(data))
    return data[:at] + rng.randbytes(rng.randint(1, 16)) + data[at:]


def delete(rng: Random, data: bytes, other: bytes) -> bytes:
    """Take a run of bytes out."""
    start, length = _run(rng, data)
    return data[:start] + data[start + length :]


def repeat(rng: Random, data: bytes, other: bytes) -> bytes:
    """Repeat a run of bytes."""
    start, length = _run(rng, data)
    run = data[start : start + length] * rng.choice((1, 2, 100))
    return data[:start] + run[: 1 << 16] + data[start:]


def splice(rng: Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one and the end of another."""
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def number(rng: Random, data: bytes, other: bytes) -> bytes:
    """Write an interesting number over some bytes."""
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(NUMBERS) + rng.randint(-1, 1)
    order = rng.choice(("little", "big"))
    raw = (value % (1 << (8 * size))).to_bytes(size, order)  # type: ignore[arg-type]
    at = rng.randrange(max(len(data) - size, 1))
    return data[:at] + raw + data[at + size :]


def header(rng: Random, data: bytes, other: bytes) -> bytes:
    """Flip bits of the first 64 bytes alone, where formats have their lengths."""
    return flip(rng, data[:64], other) + data[64:]


def empty(rng: Random, data: bytes, other: bytes) -> bytes:
    """Nothing at all."""
    return b""


_BYTES: tuple[Mutator, ...] = (
    flip, flip, header, truncate, insert, delete, repeat, splice, number, number,
)  # fmt: skip


def raw(rng: Random, data: bytes, other: bytes) -> bytes:
    """Any mutation of bytes."""
    if not data:
        return insert(rng, data, other)
    return empty(rng, data, other) if rng.random() < 0.002 else rng.choice(_BYTES)(rng, data, other)


def mostly(aware: Mutator, bytewise: float = 0.1) -> Mutator:
    """Aware mutations, and a share of bytewise ones; some inputs get two or three."""

    def mutate(rng: Random, data: bytes, other: bytes) -> bytes:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            try:
                data = (raw if rng.random() < bytewise else aware)(rng, data, other)
            except Exception:  # changed once, it is not a file that a mutator understands
                data = raw(rng, data, other)
        return data

    return mutate


def by_name(name: str) -> Mutator:
    """The mutator for files of a name."""
    suffix = name.rpartition(".")[2].lower()
    return _BY_SUFFIX.get(suffix, raw)


_BY_SUFFIX: dict[str, Mutator] = {
    "json": mostly(mutate_json.document),
    "jsonl": mostly(mutate_json.lines),
    "air": mostly(mutate_text.program),
    "layout": mostly(mutate_text.program),
    "passes": mostly(mutate_text.program),
    "txt": mostly(mutate_text.program),
    "safetensors": mostly(mutate_archives.safetensors, 0.25),
}
for _suffix in ("npz", "pt2", "pt"):
    _BY_SUFFIX[_suffix] = mostly(mutate_archives.zipped(by_name), 0.25)
_BY_SUFFIX["npy"] = mostly(mutate_archives.npy)


def mutated(rng: Random, seeds: Sequence[Content]) -> Content:
    """One of the seeds with one of its files changed, or with other files."""
    seed, other = rng.choice(seeds), rng.choice(seeds)
    names = list(seed.files)
    if names != [""] and rng.random() < 0.1:
        return _other_files(rng, seed, names)
    name = rng.choice(names)
    data, second = seed.files[name], other.files.get(name) or seed.files[name]
    assert isinstance(data, bytes) and isinstance(second, bytes)
    changed = by_name(name or seed.name)(rng, data, second)
    return seed.with_file(name, changed[:LARGEST])  # what repeats in what repeats grows without end


def _other_files(rng: Random, seed: Content, names: list[str]) -> Content:
    name, second = rng.choice(names), rng.choice(names)
    match rng.randrange(4):
        case 0:
            return seed.without(name)
        case 1:
            return seed.with_file(name, seed.files[second])
        case 2:
            return seed.with_file(name, Link(rng.choice(LINKS)))
    unknown = rng.choice(("more.json", f"{name}.part", ".hidden", f"{name}.bak"))
    return seed.with_file(unknown, seed.files[name])


LARGEST = 2**24
"""Bytes of a changed file."""
LINKS = ("/dev/zero", "/etc/hostname", "no such file", ".", "/dev/null")
"""What a file of a folder may be a link to, where an enemy wrote the folder."""


def _run(rng: Random, data: bytes) -> tuple[int, int]:
    """Start and length of a run of bytes, mostly a short one."""
    length = rng.randint(1, min(len(data), rng.choice((4, 32, 1024))))
    return rng.randint(0, len(data) - length), length
