"""The option of what a bundle keeps of the user's module."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.compilation.declared import Options, documented, without


@documented
@dataclass(frozen=True, kw_only=True)
class KeptOptions(Options):
    """What a bundle keeps of the data."""

    keep_answers: bool = without(
        "Keep a few inputs and the model's answers in the bundle's folder owner/, in the clear."
    )
