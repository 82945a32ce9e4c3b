"""Texts of one line: layouts, and the pipelines of ``atlasc opt -p``."""

from __future__ import annotations

from pathlib import Path

from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.passes.framework.pass_base import parse_pipeline
from atlasc.passes.registry import passes
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import files

LAYOUTS = (
    "[*:2 g:3 d:3 b:2 t:2 | g.3:2 | b=3 t=4 g=30 d=7]",
    "[d:3 ?:2 t:4 | | t=13 d=8]",
    "[*:4 g:1 s:5 t:5 | g.1:2 | t=17 g=8 s=32]",
)
PIPELINES = (
    "canonicalise,expand,normalise-affine,fold-features,assign-scales,pack{slots=4}",
    "place-bootstraps{levels=14,bootstrap=true,batch=1,error=0.0,cubic=0.0}",
    "approximate , rotation-keys",
)


def _layout(path: Path) -> object:
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        layout = Layout.parse(text)
    except ValueError as error:  # what the rules of the ops make an AtlasError of
        raise AtlasError("not a layout", why=str(error)) from None
    assert Layout.parse(str(layout)) == layout
    return layout.slots, layout.ciphertexts, layout.shape


def _pipeline(path: Path) -> object:
    return [
        str(step) for step in parse_pipeline(path.read_bytes().decode("utf-8", "replace"), passes())
    ]


READERS = [
    Reader("layout", files({f"{n}.layout": text for n, text in enumerate(LAYOUTS)}), _layout, 3000),
    Reader(
        "pipeline",
        files({f"{n}.passes": text for n, text in enumerate(PIPELINES)}),
        _pipeline,
        3000,
    ),
]
