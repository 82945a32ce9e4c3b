"""The model as the client of a bundle knows it: how to read inputs, without weights or torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from atlasc.ir.module import Module
from atlasc.loading.configs import read_object
from atlasc.loading.models import LoadedModel


class ClientModel(LoadedModel):
    """Stands for a loaded model where inputs are read.

    Tokenizer and image preprocessing come from the files of the original model, names and shapes of
    the inputs from the client's program.
    """

    embed: Module

    @classmethod
    def of(cls, embed: Module, folder: Path) -> ClientModel:
        """The model of a client.

        Args:
            embed: nn module from raw inputs to what is encrypted.
            folder: config, tokenizer and preprocessor of the original model; the config is missing
                where that was an archive of torch.export.

        Raises:
            AtlasError: the config is no JSON object.
        """
        path = folder / "config.json"
        config = read_object(path, links=False) if path.exists() else {}
        model = cls(
            module=None,
            kind="client",
            config=SimpleNamespace(**config),
            source=folder,
            has_weights=False,
        )
        model.embed = embed
        return model

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that data supply, the private one first."""
        private = tuple(op.attributes["name"] for op in self.embed.inputs)
        return (*private, "attention_mask") if private == ("input_ids",) else private

    def exported_shape(self, name: str) -> tuple[int | None, ...] | None:
        """Shape of an image input, its batch free; lengths of texts are checked by their own."""
        for op in self.embed.inputs:
            if op.attributes["name"] == name and name != "input_ids":
                return (None, *op.attributes["shape"][1:])
        return None
