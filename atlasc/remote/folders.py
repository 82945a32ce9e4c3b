"""Where a client keeps what it needs of a service."""

from __future__ import annotations

import os
import re
from pathlib import Path


def default_folder(url: str, model: str) -> Path:
    """The folder for a model of a service, in the user's data folder."""
    return data_folder("services", url) / _file_name(model)


def data_folder(kind: str, url: str) -> Path:
    """What a client keeps of one kind for a service, in the user's data folder."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "atlasc" / kind / _file_name(url.partition("://")[2])


def _file_name(words: str) -> str:
    """Words of a service as a name in this folder, never as a path to another one."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", words).lstrip(".") or "-"


def program_folder(folder: Path, identity: str) -> Path:
    """Place in the client's folder of a program; of a bundle with a step and a prefill, that of the
    prefill.
    """
    return folder / "programs" / identity[:16]
