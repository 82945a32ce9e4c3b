"""Train a small Vision Transformer on scikit-learn's 1,797 handwritten digits (8 x 8 pixels).

    python examples/digits_vit/train.py [--output DIRECTORY]

Writes a HuggingFace directory (`model/`) and two array files: `calibration.npz` (the training
images) and `test.npz` (the images that training never saw, with their labels). Nothing is
downloaded.

The model is an ordinary `ViTForImageClassification`. Only the loss has an extra term: under CKKS
the cost of a layer norm, of a softmax and of a GELU grows with the *range* of its input, so
training keeps these ranges narrow.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

SEED = 0
TEST_FRACTION = 0.2
EPOCHS = 120
BATCH = 64
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.1
PIXEL_NOISE = 0.05
SCORE_BOUND = 0.75
GELU_BOUND = 1.5
VARIANCE_RATIO = 1.5
RANGE_WEIGHT = 8.0


def load_split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fixed, stratified split: train images, test images, train labels, test labels.

    Images are float32 of shape [N, 1, 8, 8] in [0, 1] (scikit-learn's pixels run from 0 to 16).
    """
    digits = load_digits()
    pixels = (digits.images / 16.0).astype(np.float32)[:, None]
    return tuple(  # type: ignore[return-value]
        train_test_split(
            pixels,
            digits.target,
            test_size=TEST_FRACTION,
            random_state=SEED,
            stratify=digits.target,
        )
    )


def build_model() -> ViTForImageClassification:
    """One pre-norm encoder layer, 4 patches and a class token, 32 features, 4 heads."""
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=32,
        hidden_act="gelu",
        image_size=8,
        patch_size=4,
        num_channels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=10,
        id2label={i: str(i) for i in range(10)},
        label2id={str(i): i for i in range(10)},
        initializer_range=0.1,
        layer_norm_eps=1e-6,
    )
    return ViTForImageClassification._from_config(config, attn_implementation="eager")


class RangeProbe:
    """Records, in each forward pass, what the costly nonlinear functions are applied to.

    After a pass: `variances` (name -> [B, n], the input variances of each layer norm), `scores`
    ([B, H, n, n], softmax inputs) and `gelu` ([B, n, intermediate], GELU inputs). They carry
    gradients when the pass does.
    """

    def __init__(self, model: nn.Module) -> None:
        self.variances: dict[str, Tensor] = {}
        self.scores = self.gelu = torch.zeros(())
        self._heads = 1
        self._projected: dict[str, Tensor] = {}
        for name, module in model.named_modules():
            leaf = name.rpartition(".")[2]
            if isinstance(module, nn.LayerNorm):
                module.register_forward_pre_hook(self._norm_hook(leaf))
            elif leaf in ("q_proj", "k_proj"):
                module.register_forward_hook(self._projection_hook(leaf))
            elif leaf == "fc1":
                module.register_forward_hook(self._gelu_hook)
            elif hasattr(module, "num_attention_heads"):
                self._heads = module.num_attention_heads

    def _norm_hook(self, name: str):
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self.variances[name] = inputs[0].var(dim=-1, unbiased=False)

        return hook

    def _projection_hook(self, name: str):
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            batch, tokens, width = output.shape
            heads = output.view(batch, tokens, self._heads, width // self._heads).transpose(1, 2)
            self._projected[name] = heads
            if len(self._projected) == 2:
                query, key = self._projected["q_proj"], self._projected["k_proj"]
                self.scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
                self._projected = {}

        return hook

    def _gelu_hook(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        self.gelu = output

    def penalty(self) -> Tensor:
        """Zero while every range is inside its bound; grows with the square of the excess."""
        terms = [excess(self.scores, SCORE_BOUND), excess(self.gelu, GELU_BOUND)]
        for variance in self.variances.values():
            logarithm = variance.clamp_min(1e-6).log()
            centre = ((logarithm.amax() + logarithm.amin()) / 2).detach()
            terms.append(excess(logarithm - centre, float(np.log(VARIANCE_RATIO)) / 2))
        return torch.stack(terms).sum()


def excess(values: Tensor, bound: float) -> Tensor:
    """Mean square, over the batch, of what each input's worst value has beyond +-bound."""
    return (values.abs().flatten(1).amax(dim=1) - bound).clamp_min(0).square().mean()


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image by up to one pixel each way and add a little noise."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    windows = padded.unfold(2, 8, 1).unfold(3, 8, 1)[:, 0]  # [B, 3, 3, 8, 8]
    # The unshifted image is drawn more often: the test images are centred like the training ones.
    offsets = torch.tensor([0, 1, 1, 1, 2])
    rows, columns = offsets[torch.randint(5, (2, len(images)), generator=generator)]
    shifted = windows[torch.arange(len(images)), rows, columns][:, None]
    return shifted + PIXEL_NOISE * torch.randn(shifted.shape, generator=generator)


def train(model: nn.Module, probe: RangeProbe, images: Tensor, labels: Tensor) -> None:
    """AdamW with a one-cycle learning rate; a line of progress every ten epochs."""
    generator = torch.Generator().manual_seed(SEED)
    steps = -(-len(images) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, EPOCHS * steps)
    loss_function = nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)
    for epoch in range(EPOCHS):
        total = 0.0
        for indices in torch.randperm(len(images), generator=generator).split(BATCH):
            logits = model(pixel_values=augment(images[indices], generator)).logits
            loss = loss_function(logits, labels[indices]) + RANGE_WEIGHT * probe.penalty()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(indices)
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1:3d}/{EPOCHS}  loss {total / len(images):.4f}", flush=True)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images whose largest logit is at their label."""
    return (model(pixel_values=images).logits.argmax(-1) == labels).float().mean().item()


@torch.no_grad()
def measured_ranges(model: nn.Module, probe: RangeProbe, images: Tensor) -> dict[str, list[float]]:
    """Lowest and highest input of each nonlinear function over the images."""
    model(pixel_values=images)
    named = {f"variance of {name}": values for name, values in probe.variances.items()}
    named |= {"attention scores": probe.scores, "GELU inputs": probe.gelu}
    return {
        name: [round(values.min().item(), 4), round(values.max().item(), 4)]
        for name, values in named.items()
    }


def save(model: ViTForImageClassification, output: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write `model/`, `calibration.npz` and `test.npz` below the output directory."""
    model.save_pretrained(output / "model")
    preprocessor = {
        "image_processor_type": "ViTImageProcessor",
        "do_convert_rgb": False,
        "do_resize": True,
        "size": {"height": 8, "width": 8},
        "resample": 2,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": False,
    }
    text = json.dumps(preprocessor, indent=2) + "\n"
    (output / "model" / "preprocessor_config.json").write_text(text, encoding="utf-8")
    np.savez_compressed(output / "calibration.npz", pixel_values=arrays["train"])
    np.savez_compressed(
        output / "test.npz", pixel_values=arrays["test"], labels=arrays["test_labels"]
    )


def main() -> None:
    """Train, print accuracy and ranges, and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    output: Path = parser.parse_args().output
    started = time.perf_counter()
    torch.set_num_threads(1)  # the sums, and so the weights, do not depend on the machine's cores
    torch.manual_seed(SEED)
    train_images, test_images, train_labels, test_labels = load_split()
    model = build_model()
    probe = RangeProbe(model)
    train(model, probe, torch.from_numpy(train_images), torch.from_numpy(train_labels))
    model.eval()
    everything = torch.from_numpy(np.concatenate([train_images, test_images]))
    for name, (low, high) in measured_ranges(model, probe, everything).items():
        print(f"{name:28s} {low:9.4f} .. {high:9.4f}")
    for name, images, labels in (
        ("train", train_images, train_labels),
        ("test", test_images, test_labels),
    ):
        share = accuracy(model, torch.from_numpy(images), torch.from_numpy(labels))
        print(f"accuracy on {len(images)} {name} images: {share:.2%}")
    arrays = {"train": train_images, "test": test_images, "test_labels": test_labels}
    save(model, output, arrays)
    print(f"saved to {output} after {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
