"""The option of what a bundle keeps of the user's module."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.compilation.declared import Options, documented, option


@documented
@dataclass(frozen=True, kw_only=True)
class KeptOptions(Options):
    """What a bundle keeps of the data."""

    keep_answers: bool = option(
        "Keep a few inputs and the model's answers in the bundle's folder owner/, in the clear.",
        "--keep-answers/--no-keep-answers",
        default=True,
    )
