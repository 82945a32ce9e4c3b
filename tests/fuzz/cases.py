"""Cases that are too large for a file of the corpus, or that are made from a valid file.

Every one of them went wrong in some reader once, or is named in the report of an attack. Those for
a kind of file are tried on every reader that opens such a file.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.fuzz.content import Content, Link
from tests.fuzz.mutate_archives import archive, npy_bytes, zeros_npz
from tests.fuzz.mutate_json import RAW, dumped
from tests.sealed_files import Array, opened, sealed

Cases = Iterator[tuple[str, Content]]

TEXTS: dict[str, bytes] = {
    "empty": b"",
    "deep lists": b"[" * 100_000,
    "deep members": b'{"a":' * 100_000,
    "deep and closed": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "5000 digits": b"9" * 5000,
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "not finite": b"NaN",
    "utf-16": '{"format": 1}'.encode("utf-16"),
    "not utf-8": b'{"a": "\xff\xfe"}',
    "bare half character": b'{"format": "\\ud800"}',
}
VALUES: dict[str, Any] = {
    "escape": "\x1b]0;title\x07\x1b[2J",
    "digits": RAW + "9" * 5000,
    "huge": 10**40,
    "infinite": RAW + "1e999",
    "negative": -1,
    "true": True,
    "text": "2",
    "null": None,
    "list": [],
    "object": {},
    "half character": "\ud800",
}


def cases(reader: str, seeds: Sequence[Content]) -> dict[str, Content]:
    """All cases of a reader by name."""
    seed = seeds[0]
    found: dict[str, Content] = {}
    for name in seed.files:
        full = name or seed.name
        for kind, make in _OF_KIND.items():
            if full.endswith(kind):
                found |= {f"{full}: {case}": content for case, content in make(seed, name)}
        if name:
            found |= dict(_of_folder(seed, name))
    if make := _OF_READER.get(reader):
        found |= dict(make(seed))
    return found


def _json(seed: Content, name: str) -> Cases:
    for case, text in TEXTS.items():
        yield case, seed.with_file(name, text)
    valid = json.loads(_data(seed, name))
    if not isinstance(valid, dict) or len(valid) > 20:
        return
    for member in valid:
        for case, value in VALUES.items():
            yield f"{member} {case}", seed.with_file(name, dumped({**valid, member: value}))
        rest = {key: value for key, value in valid.items() if key != member}
        yield f"without {member}", seed.with_file(name, dumped(rest))
        twice = dumped({**valid, RAW + json.dumps(member): 1})
        yield f"{member} twice", seed.with_file(name, twice)


def _lines(seed: Content, name: str) -> Cases:
    for case, text in TEXTS.items():
        yield f"first line {case}", seed.with_file(name, text)
        yield f"last line {case}", seed.with_file(name, _data(seed, name) + b"\n" + text + b"\n")


def _air(seed: Content, name: str) -> Cases:
    text = _data(seed, name)
    for case, end in (("word", b"more"), ("brace", b"}"), ("module", text), ("zero byte", b"\0")):
        yield f"a {case} after the end", seed.with_file(name, text + end)
    for case, value in (
        ("5000 digits", "9" * 5000),
        ("100 lists in each other", "[" * 100 + "]" * 100),
        ("600 lists in each other", "[" * 600 + "]" * 600),
        ("30000 lists in each other", "[" * 30000 + "]" * 30000),
        ("600 members in each other", "{a = " * 600 + "1" + "}" * 600),
    ):
        module = f"module @m : nn {{a = {value}}} {{\n}}\n"
        yield case, seed.with_file(name, module.encode())
    for extents in ("9" * 5000, "x".join(["9"] * 70), "18446744073709551616", "0x0"):
        module = f"module @m : nn {{\n  symbol @w : float64[{extents}]\n}}\n"
        yield f"extents of {extents[:20]}", seed.with_file(name, module.encode())


def _npz(seed: Content, name: str) -> Cases:
    arrays = zipfile.ZipFile(io.BytesIO(_data(seed, name))).namelist() or ["x.npy"]
    first = arrays[0].removesuffix(".npy")
    yield "bomb", seed.with_file(name, zeros_npz(first))
    header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    claims: dict[str, dict[str, Any]] = {
        "claims terabytes": {},
        "claims more than a number holds": {"shape": (1 << 62, 1 << 62)},
        "claims a negative extent": {"shape": (-1,)},
        "claims objects": {"descr": "|O", "shape": (1,)},
        "claims long texts": {"descr": "<U2147483647", "shape": (1 << 40,)},
        "has 70 axes": {"shape": (1,) * 70},
    }
    for case, claim in claims.items():
        data = npy_bytes({**header, **claim}, b"\x80\x04N." * 4)
        yield case, seed.with_file(name, archive([(arrays[0], data)]))
    one = npy_bytes({**header, "shape": (1,)}, bytes(8))
    for entry in ("../../escaped.npy", "/etc/x.npy", "\x1b[2J.npy", "x.txt"):
        yield f"entry {entry!r}", seed.with_file(name, archive([(entry, one)]))
    yield "an entry twice", seed.with_file(name, archive([(arrays[0], one)] * 2))
    yield "no zip", seed.with_file(name, one)


def _safetensors(seed: Content, name: str) -> Cases:
    data = _data(seed, name)
    for length in (1 << 27, 1 << 40, (1 << 64) - 1):
        yield f"header of {length}", seed.with_file(name, struct.pack("<Q", length) + data[8:])
    size = 128 << 20
    blank = struct.pack("<Q", size) + b"{}" + b" " * (size - 2)
    yield "blank header of 128 MB", seed.with_file(name, blank)


def _of_folder(seed: Content, name: str) -> Cases:
    for target in ("/dev/zero", "/etc/hostname", ".", "nowhere"):
        yield f"{name} links to {target}", seed.with_file(name, Link(target))
    yield f"without {name}", seed.without(name)
    folder = {n: file for n, file in seed.files.items() if n != name} | {f"{name}/x": b""}
    yield f"{name} is a folder", Content(seed.name, folder)


def _image(seed: Content, name: str) -> Cases:
    for side in (11_000, 13_000, 65_000):  # pillow warns of the first, and refuses the last
        size = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        chunks = [(b"IHDR", size), (b"IDAT", compressed_zeros(side * (side + 1))), (b"IEND", b"")]
        parts = [
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        ]
        yield (
            f"{side} pixels a side",
            seed.with_file(name, b"".join([b"\x89PNG\r\n\x1a\n", *parts])),
        )


def compressed_zeros(count: int) -> bytes:
    """What zlib makes of so many zeros. Equal blocks are repeated, so gigabytes take no time."""

    def block(size: int, end: int) -> bytes:
        compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
        return compressor.compress(bytes(size)) + compressor.flush(end)

    blocks, rest = divmod(count, 1 << 20)
    adler32 = (count % 65521) << 16 | 1
    body = block(1 << 20, zlib.Z_FULL_FLUSH) * blocks + block(rest, zlib.Z_FINISH)
    return b"\x78\xda" + body + struct.pack(">I", adler32)


def _bundle(seed: Content) -> Cases:
    manifest = json.loads(_data(seed, "manifest.json"))
    weights = "server/program.safetensors"
    changed = bytearray(_data(seed, weights))
    for at in range(len(changed) - 160, len(changed), 8):
        changed[at + 6] ^= 0x10
    listed = {name: digest for name, digest in manifest["files"].items() if name != weights}
    delisted = seed.with_file("manifest.json", dumped({**manifest, "files": listed}))
    yield "weights delisted and removed", delisted.without(weights)
    yield "weights delisted and changed", delisted.with_file(weights, bytes(changed))
    yield "weights changed", seed.with_file(weights, bytes(changed))
    outside = b"outside"
    digest = hashlib.sha256(outside).hexdigest()
    for name in (
        "../outside",
        "server/../../outside",
        "/etc/hostname",
        "./manifest.json",
        "a\x1bb",
    ):
        files = {**manifest["files"], name: digest}
        text = dumped({**manifest, "files": files})
        yield f"lists {name!r}", seed.with_file("manifest.json", text)
    for name, value in (
        ("insecure", True),
        ("batch", 1),
        ("sequence_length", 9),
        ("target", "sim"),
    ):
        text = dumped({**manifest, name: value})
        yield f"{name} is {value}", seed.with_file("manifest.json", text)
    other = {**manifest["parameters"], "special_primes": 4}
    yield (
        "other parameters",
        seed.with_file("manifest.json", dumped({**manifest, "parameters": other})),
    )


def _messages(seed: Content) -> Cases:
    metadata, arrays = opened(_data(seed, ""))
    name = next(name for name in arrays if "/" in name)

    def with_facts(**facts: Any) -> Content:
        return seed.with_file("", sealed({**metadata, **facts}, arrays))

    def with_arrays(**others: Array) -> Content:
        return seed.with_file("", sealed(metadata, {**arrays, **others}))

    for count in ("0", "-1", "1000000000", "3", "02", 2, None):
        yield f"count {count!r}", with_facts(count=count)
    yield "another query", with_facts(query="f" * 32)
    yield "no name of a query", with_facts(query="../../etc/passwd")
    yield "another engine", with_facts(engine="sim")
    yield "an array too many", with_arrays(more=Array("U8", (0,), b""))
    yield "another name", with_arrays(**{"\x1b[2J": Array("U8", (1,), b"x")})
    yield "an array less", seed.with_file("", sealed(metadata, {}))
    yield "an empty ciphertext", with_arrays(**{name: Array("U8", (0,), b"")})
    yield "numbers for a ciphertext", with_arrays(**{name: Array("F64", (1,), bytes(8))})
    yield "a shape that is none", with_arrays(**{name: Array("U8", (2**60, 2**60), b"x")})


def _config(seed: Content) -> Cases:
    config = json.loads(_data(seed, "config.json"))
    for number, (member, value) in enumerate((
        ("num_hidden_layers", 10**7), ("hidden_size", 2**40), ("image_size", 10**9),
        ("num_attention_heads", 0), ("patch_size", 0), ("id2label", {"0": "\x1b[2J"}),
        ("architectures", ["\x1b[2J"]), ("architectures", 3), ("model_type", "\x1b[2J"),
        ("auto_map", {"AutoModel": "x.Y"}), ("dtype", "\x1b[2J"), ("hidden_size", RAW + "9" * 5000),
    )):  # fmt: skip
        yield (
            f"{number}: {member}",
            seed.with_file("config.json", dumped({**config, member: value})),
        )


def _pt2(seed: Content) -> Cases:
    with zipfile.ZipFile(io.BytesIO(_data(seed, ""))) as file:
        entries = [(info.filename, file.read(info)) for info in file.infolist()]
    for case, place in (
        ("line break and code", "patch\\n} __attribute__((constructor)) void f() {} //"),
        ("terminal escape", "patch\\u001b[2J"),
        ("end of a comment", "patch*/ #include"),
    ):
        changed = [
            (name, data.replace(b"patch,", place.encode() + b",") if "model.json" in name else data)
            for name, data in entries
        ]
        yield case, seed.with_file("", archive(changed))
    trace = re.compile(rb'"stack_trace":\s*"(?:[^"\\]|\\.)*"')
    changed = [(name, trace.sub(b'"stack_trace": 7', data)) for name, data in entries]
    assert changed != entries
    yield "lines of code that are numbers", seed.with_file("", archive(changed))
    for record in ("models/model.json", "data/weights/model_weights_config.json"):
        for case in ("deep members", "5000 digits", "list"):
            changed = [(n, TEXTS[case] if n.endswith(record) else data) for n, data in entries]
            yield f"{record} {case}", seed.with_file("", archive(changed))


def _data(seed: Content, name: str) -> bytes:
    data = seed.files[name]
    assert isinstance(data, bytes)
    return data


_OF_KIND: dict[str, Callable[[Content, str], Cases]] = {
    ".json": _json,
    ".jsonl": _lines,
    ".air": _air,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".png": _image,
}
_OF_READER: dict[str, Callable[[Content], Cases]] = {
    "bundle": _bundle,
    "query": _messages,
    "answer": _messages,
    "config": _config,
    "model-directory": _config,
    "pt2": _pt2,
}
