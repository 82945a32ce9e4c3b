"""Folders with an adapter (such as LoRA): small matrices that change another model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, read_json

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
MERGE = (
    "merge the adapter into its model and save the whole in a new folder: "
    "AutoPeftModelForCausalLM.from_pretrained(adapter).merge_and_unload().save_pretrained(folder), "
    "with the class of your model"
)


def check_adapter(directory: Path, note: Callable[[str, str], object]) -> None:
    """Check that a folder with files of an adapter can be read as a whole, merged model.

    A note says that the weights count as merged.

    Raises:
        AtlasError: the folder holds only an adapter, or a model and an adapter beside it.
    """
    if not (directory / CONFIG).exists():
        return
    adapter = next((name for name in WEIGHTS if (directory / name).exists()), None)
    whole = any(directory.glob("model*.safetensors")) or any(directory.glob("pytorch_model*.bin"))
    if not whole or not (directory / "config.json").exists():
        raise AtlasError(
            "the model directory holds only an adapter",
            where=str(directory),
            why=f"the model that the adapter changes lies elsewhere{_base(directory)}",
            remedy=MERGE,
        )
    if adapter is not None:
        raise AtlasError(
            "the model directory holds a model and an adapter beside it",
            where=str(directory),
            why=f"nothing says whether {adapter} is merged into the weights of the model",
            remedy=f"if it is merged, delete {CONFIG} and {adapter}; if it is not, {MERGE}",
        )
    note(
        f"{CONFIG} is not read: the weights beside it count as the merged model",
        "  why: the folder has the weights of a whole model and none of an adapter",
    )


def _base(directory: Path) -> str:
    given = read_json(directory / CONFIG, dict[str, Any], "the adapter's config", 16 * MIB)
    name = given.get("base_model_name_or_path")
    return f" ({name})" if isinstance(name, str) else ""


@contextmanager
def without_adapter(directory: Path) -> Iterator[Path]:
    """The folder without its adapter config, for libraries that would otherwise load the
    adapter.
    """
    if not (directory / CONFIG).exists():
        yield directory
        return
    with TemporaryDirectory(prefix="atlasc-model-") as place:
        for file in directory.iterdir():
            if file.is_file() and not file.name.startswith("adapter_"):
                (Path(place) / file.name).symlink_to(file.absolute())
        yield Path(place)
