"""All exact changes that a calibration chose, in the order in which they were chosen."""

from __future__ import annotations

from atlasc.calibration.calibrate import Calibration
from atlasc.ir.module import Module
from atlasc.passes.calibration.centre_keys import with_centred_keys
from atlasc.passes.calibration.fill_padding import with_filled_padding
from atlasc.passes.calibration.scale_tokens import with_scaled_tokens


def adjusted(module: Module, calibration: Calibration) -> Module:
    """The module whose ranges a calibration holds; changes that were made already stay.

    Raises:
        AtlasError: the calibration belongs to another module.
    """
    filled = with_filled_padding(module, calibration.padding)
    centred = with_centred_keys(filled, calibration.keys)
    return with_scaled_tokens(centred, calibration.tokens)
