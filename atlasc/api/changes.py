"""Types of single options of ``atlasc.compile``. ``python -m documentation`` writes this file."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import TypedDict


class Changes(TypedDict, total=False):
    """Options of :class:`atlasc.CompileOptions` by name; None is the default.

    A number or a choice with a spelling on the command line, such as ``4G``, may be that text.
    Where the option of the command line has another name, it is beside the field.
    """

    keep_answers: bool | None  # --without keep-answers
    measure: str | None
    labelled: Path | str | None
    costs: Path | str | None
    device_memory: int | str | None  # --target 'phantom{device-memory=SIZE}'
    target: str | None
    key_memory: float | str | None  # --target 'cpu{key-memory=SIZE}'
    upload_at_most: int | str | None  # --target 'cpu{upload-at-most=SIZE}'
    max_error: float | None
    max_depth: int | None
    max_levels: int | None
    max_seconds: float | None
    min_accuracy: float | str | None
    agreement: float | str | None
    unsafe_at_most: float | str | None
    tolerated: float | None  # --ranges 'measured{tolerated=N}'
    sequence_length: int | None
    outputs: str | None
    trust_pickle: bool | None
    batch: int | None
    long: str | None
    ranges: str | None
    margin: float | None  # --ranges 'measured{margin=N}'
    held_back: float | None  # --ranges 'measured{held-back=N}'
    prefixes: bool | None  # --without prefixes
    repetitions: bool | None  # --without repetitions
    fill_padding: bool | None  # --without fill-padding
    centre_keys: bool | None  # --without centre-keys
    scale_tokens: bool | None  # --without scale-tokens
    seed: int | None
    strategy: str | None
    evaluations: int | None  # --strategy 'hybrid{evaluations=N}'
    cost: str | None
    space: str | None
    softmax_ranges: str | None  # --space 'wide{softmax-ranges=paper|measured}'
    fits: str | None  # --space 'wide{fits=interpolated|weighted}'
    degrees: str | None  # --space 'wide{degrees=powers|openfhe|any}'
    softmax_algorithms: str | None  # --space 'wide{softmax-algorithms=iterative|any}'
    channels: str | None  # --space 'wide{channels=shared|each}'
    share_settings: int | None  # --space 'wide{share-settings=N}'
    population: int | None  # --strategy 'atlas{population=N}'
    generations: int | None  # --strategy 'atlas{generations=N}'
    layer_population: int | None  # --strategy 'atlas{layer-population=N}'
    layer_generations: int | None  # --strategy 'atlas{layer-generations=N}'
    early_layers: int | None  # --strategy 'atlas{early-layers=N}'
    workers: str | None
    worker_count: int | None  # --workers 'ray{count=N}'
    ray_address: str | None  # --workers 'ray{address=N}'
    threads: int | None  # --workers 'serial{threads=N}'
    recipe: str | None
    front: Path | str | None
    point: int | None
    name: str | None
    generate: bool | None
    prefill: bool | None  # --without prefill
    head: str | None
    public_prefix: Path | str | None
