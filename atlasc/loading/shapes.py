"""Shapes of inputs that are neither texts nor images, as far as a model's files give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, read_json

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

EXTRACTOR = "preprocessor_config.json"
MEMBERS = {
    "input_values": ("max_length", "num_mel_bins"),
    "input_features": ("feature_size", "nb_max_frames"),
}
"""Input -> members of the config, or of its feature extractor: the extents of a spectrogram."""


def spectrogram_shape(model: LoadedModel, name: str) -> tuple[int, int]:
    """The shape of one spectrogram, without the batch.

    Raises:
        AtlasError: no file of the model gives it, as for a waveform of any length.
    """
    path = model.directory / EXTRACTOR
    what = "the settings of the feature extractor"
    facts = read_json(path, dict[str, Any], what, MIB) if path.is_file() else {}
    members = MEMBERS.get(name, ())
    known = (getattr(model.config, one, facts.get(one)) for one in members)
    given = [one for one in known if type(one) is int and 0 < one < 1 << 25]
    if len(given) != 2:
        raise AtlasError(
            f"the shape of {name} is not known",
            where=str(model.directory),
            why=f"neither config.json nor {EXTRACTOR} has the extents of a spectrogram"
            + (f": {' and '.join(members)}" if members else ""),
            remedy=f"give data with the array {name}, or export the model with torch.export for "
            "inputs of your shape",
        )
    first, second = given
    return first, second
