"""IR text: parsed, verified, and printed again if it is accepted."""

from __future__ import annotations

from pathlib import Path

from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.ir.verifier import verify
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import Seeds, compiled, files, random_programs

LOWERED = {
    "nn": ("nn.air", "tiny/bundle/client/embed.air"),
    "poly": ("tiny/bundle/server/poly.air",),
    "ckks": ("tiny/bundle/server/program.air",),
}


def _seeds(level: str) -> Seeds:
    def seeds(folder: Path) -> list[Path]:
        texts = {f"random{n}.air": text for n, text in enumerate(random_programs()[level])}
        for name in LOWERED[level]:
            texts[Path(name).name] = (compiled() / name).read_text()
        return list(files(dict(texts))(folder))

    return seeds


def _read(path: Path) -> str:
    module = parse(path.read_bytes().decode("utf-8", "replace"), source="text.air")
    verify(module)
    text = print_module(module)
    assert print_module(parse(text)) == text
    return text


READERS = [
    Reader("ir-nn", _seeds("nn"), _read, 600),
    Reader("ir-poly", _seeds("poly"), _read, 600),
    Reader("ir-ckks", _seeds("ckks"), _read, 600),
]
