"""A model of two matrices: compiled in seconds, and its keys are made in a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BATCH = 1


def write_model(folder: Path) -> tuple[Path, Path]:
    """An archive of torch.export, and images for it."""
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(1, 8, 4, stride=4)
            self.classes = nn.Linear(8, 3)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.classes(self.patch(pixel_values).flatten(2).transpose(1, 2)[:, 0])

    torch.manual_seed(0)
    images = {"pixel_values": torch.rand(BATCH, 1, 8, 8)}
    program = torch.export.export(Small().eval(), (), images, strict=False)
    archive, data = folder / "small.pt2", folder / "images.npz"
    torch.export.save(program, archive)
    np.savez(data, pixel_values=np.random.default_rng(0).random((8, 1, 8, 8), dtype=np.float32))
    return archive, data
