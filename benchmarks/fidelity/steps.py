"""A compiled decoder that writes by steps, as `atlasc generate` does, with errors of bootstraps.

The window of the program computes the prompt, and each further token is a step beside the keys and
values of all tokens before it, errors included. Both are the polynomials of the program in the
clear. A value of the step gets the error of a bootstrap where that value of the window does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.ir.module import Module, Op
from atlasc.ir.ops.tensors import POSITION
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.targets.noise import NoiseModel
from benchmarks.fidelity.noisy import NoisyProgram

CHUNK = 8
"""Prompts whose windows are computed together."""
IDS, MASK = "input_ids", "attention_mask"


class Continued:
    """Logits ``[N, vocabulary]`` of the next token of texts that grow by a token at each call.

    Args:
        begin: takes ids [N, count], and returns the logits after the last one. It starts anew.
        go_on: takes ids [N, count], whose tokens but the last one were seen before.
    """

    def __init__(
        self,
        begin: Callable[[np.ndarray], np.ndarray],
        go_on: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        self._begin, self._go_on = begin, go_on
        self._seen = np.zeros((0, 0), np.int64)

    def __call__(self, ids: np.ndarray, count: int) -> np.ndarray:
        """Logits after the first ``count`` of the ids."""
        ids = np.ascontiguousarray(ids[:, :count])
        known = self._seen.shape[1] and np.array_equal(ids[:, :-1], self._seen)
        self._seen = ids
        return self._go_on(ids) if known else self._begin(ids)


class NoisySteps:
    """The window and the step of a compiled decoder.

    Args:
        bundle: a compiled decoder.
        prompt: tokens of the shortest prompt; the step computes all later tokens.
        noise, dtype, seed: see `NoisyProgram`.
    """

    def __init__(
        self,
        bundle: Bundle,
        prompt: int,
        noise: NoiseModel | None = None,
        dtype: Any = np.float64,
        seed: int = 0,
    ) -> None:
        self._bundle, self._noisy = bundle, NoisyProgram(bundle, noise, dtype, seed)
        step = run_passes(bundle.poly, [DecodeStep(first=prompt)])
        self._step = self._noisy.interpreter(step)
        self.kept = kept_values(step)
        (self._row,) = (
            op.attributes["name"]
            for op in step.inputs
            if op.value.tensor.side == "server" and not op.attributes.get("state")
        )
        (self._output,) = (op.attributes["name"] for op in bundle.poly.outputs)
        self._tokens = bundle.manifest.sequence_length or 0
        self._state: dict[str, np.ndarray] = {}

    def logits(self) -> Continued:
        """What the program writes."""
        return Continued(self.begin, self.go_on)

    def begin(self, ids: np.ndarray) -> np.ndarray:
        """Compute the windows of prompts [N, count]; logits [N, vocabulary] after them."""
        count, parts, found = ids.shape[1], [], []
        for start in range(0, len(ids), CHUNK):
            outputs, kept = self._begin(ids[start : start + CHUNK])
            found.append(outputs[:, count - 1].astype(np.float32))
            parts.append(kept)
        self._state = {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
        return np.concatenate(found)

    def _begin(self, ids: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        wanted = {value: name for name, value in self.kept.items()}
        kept: dict[str, np.ndarray] = {}

        def observe(op: Op, result: np.ndarray) -> None:
            if op.value.name in wanted:
                rows = np.zeros_like(result)
                rows[:, :, : ids.shape[1]] = result[:, :, : ids.shape[1]]
                kept[wanted[op.value.name]] = rows

        outputs = self._noisy.run_with_errors(self._inputs(ids), observe)
        return outputs[self._output], kept

    def go_on(self, ids: np.ndarray) -> np.ndarray:
        """Compute the step of the last of the ids [N, count]; logits [N, vocabulary] after it."""
        at, inputs = ids.shape[1] - 1, self._inputs(ids)
        inputs[self._row] = inputs[self._row][:, at]
        places = np.arange(self._tokens)[None] == at
        inputs[POSITION] = np.broadcast_to(places, (len(ids), self._tokens)).astype(np.int64)
        with np.errstate(all="ignore"):
            outputs = self._step.run({**inputs, **self._state})
        logits = outputs.pop(self._output)
        self._state = outputs
        return logits.astype(np.float32)

    def _inputs(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """What the server gets of ids [N, count], in the clear.

        Padding is the model's, as in the calibration: another token may leave the ranges.
        """
        arrays = {IDS: ids, MASK: np.ones_like(ids)}
        return dict(self._noisy.prepare(self._bundle.load_inputs(arrays).arrays))


def kept_values(step: Module) -> dict[str, str]:
    """Keys or values that a step keeps, by name -> the value of the window whose rows they have."""
    found = {}
    for op in step.outputs:
        parts = {value.op.name: value.op for value in op.operands[0].op.operands}
        if "poly.at_tokens" in parts:
            found[op.attributes["name"]] = parts["poly.at_tokens"].operands[0].name
    return found


def model_steps(model: Any) -> Continued:
    """The model as HuggingFace runs it, with its own cache of keys and values."""
    import torch

    cache: Any = None

    def logits(ids: np.ndarray, before: Any) -> np.ndarray:
        nonlocal cache
        with torch.no_grad():
            found = model(torch.from_numpy(ids), past_key_values=before, use_cache=True)
        cache = found.past_key_values
        # A copy: a view would keep the logits of all tokens, which callers collect.
        return np.array(found.logits[:, -1].float().numpy())

    return Continued(lambda ids: logits(ids, None), lambda ids: logits(ids[:, -1:], cache))
