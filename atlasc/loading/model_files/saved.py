"""A temporary folder with the files of a model that was not read from a HuggingFace directory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atlasc.ir.errors import explained
from atlasc.loading.generation.folder import GENERATION
from atlasc.loading.model_files.huggingface import quiet_transformers


def saved_parts(
    name: str, parts: Mapping[str, Any], module: Any = None
) -> tuple[TemporaryDirectory[str], Path]:
    """Save a config, a tokenizer and a processor where they are then read like files of others.

    Args:
        name: name of the model, which becomes that of the folder.
        parts: what a part is, for messages -> an object with ``save_pretrained``, or None.
        module: the model, of which the settings of generation are saved if it writes text.

    Returns:
        What keeps the folder, and the folder.

    Raises:
        AtlasError: a part cannot be saved.
    """
    kept = TemporaryDirectory(prefix="atlasc-model-")
    folder = Path(kept.name) / (re.sub(r"[^\w-]+", "_", name, flags=re.ASCII) or "model")
    folder.mkdir()
    for what, part in parts.items():
        if part is not None:
            remedy = f"give the {what} of a HuggingFace model, which has save_pretrained"
            whole = f"the {what} cannot be saved for the clients of the program"
            with explained(whole, remedy=remedy), quiet_transformers():
                part.save_pretrained(str(folder))
    settings: Any = getattr(module, "generation_config", None)
    if hasattr(settings, "to_json_file"):  # its save_pretrained refuses what its generate takes
        with explained("the settings of generation cannot be saved for the clients"):
            settings.to_json_file(str(folder / GENERATION))
    return kept, folder
