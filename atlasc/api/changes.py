"""Types of single options of ``atlasc.compile``. ``python -m documentation`` writes this file."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import TypedDict


class Changes(TypedDict, total=False):
    """Options of :class:`atlasc.CompileOptions` by name; None is the default.

    A number or a choice with a spelling on the command line, such as ``4G``, may be that text.
    """

    keep_answers: bool | None
    measure: str | None
    labelled: Path | str | None
    costs: Path | str | None
    device_memory: int | str | None
    target: str | None
    key_memory: float | str | None
    max_error: float | None
    max_depth: int | None
    max_levels: int | None
    max_seconds: float | None
    min_accuracy: float | str | None
    agreement: float | str | None
    unsafe_at_most: float | str | None
    tolerated: float | None
    sequence_length: int | None
    outputs: str | None
    trust_pickle: bool | None
    batch: int | None
    long: str | None
    ranges: str | None
    margin: float | None
    held_back: float | None
    prefixes: bool | None
    repetitions: bool | None
    fill_padding: bool | None
    centre_keys: bool | None
    scale_tokens: bool | None
    seed: int | None
    strategy: str | None
    evaluations: int | None
    cost: str | None
    space: str | None
    softmax_ranges: str | None
    fits: str | None
    degrees: str | None
    softmax_algorithms: str | None
    channels: str | None
    share_settings: int | None
    population: int | None
    generations: int | None
    layer_population: int | None
    layer_generations: int | None
    early_layers: int | None
    workers: str | None
    worker_count: int | None
    ray_address: str | None
    threads: int | None
    recipe: str | None
    front: Path | str | None
    point: int | None
    generate: bool | None
    prefill: bool | None
    head: str | None
    public_prefix: Path | str | None
