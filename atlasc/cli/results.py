"""Costs and answers as text: figures, measured times, and inputs that have no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from atlasc.cli.output import print_table, say, show, warn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from atlasc.bundle.folder import Bundle
    from atlasc.calibration.calibrate import Calibration, Outlier
    from atlasc.client.checks import Answers
    from atlasc.compilation.options import TargetOptions
    from atlasc.ir.module import Module
    from atlasc.loading.texts.spans import Span
    from atlasc.run.timing import Timing

SHOWN_VIOLATIONS = 20
"""How many violations are listed; ``--json`` and the files have all of them."""
NO_ANSWER = 3
"""Exit code if an input has no answer; the answers to the other inputs are shown."""


def warn_of_costs(target: str, costs: Path | None) -> None:
    """Warn, in one line, if times were measured with another library or on another machine."""
    from atlasc.targets import find_target

    if warning := find_target(target).cost_warning(costs):
        warn(warning)


def say_of_keys(program: Module, options: TargetOptions) -> None:
    """Say that a program has fewer rotation keys than it could use, so that it fits this machine.

    Says nothing if the user chose the memory.
    """
    from atlasc.program.key_plan import MEMORY

    limit = program.attributes.get(MEMORY)
    chosen = options.key_memory or options.device_memory or options.upload_at_most
    if limit is not None and chosen is None:
        print(
            f"rotation keys take {limit / 2**30:.1f} GiB at most, so that the program fits this "
            "machine; key-memory of --target sets another limit"
        )


def text_facts(bundle: Bundle) -> dict[str, Any]:
    """What generating text with a program costs, as JSON values.

    ``rotation_keys`` and ``key_bytes`` are of all keys of a text, ``step_rotation_keys`` and
    ``step_key_bytes`` of those that a step needs. ``least_prompt`` is the number of tokens from
    which a prompt is computed at once; None without a prefill, and ``no_prefill`` then says why.
    ``generation`` says how the client chooses tokens.
    """
    from atlasc.generation.steps import TextBundles, seconds_of
    from atlasc.runtime.interface import keys_of

    programs = TextBundles.of(bundle)
    step, prefill = programs.step, programs.prefill
    head, why = (step.manifest.settings[name] for name in ("head", "no_prefill"))
    facts: dict[str, Any] = {"head": head, "no_prefill": why, "least_prompt": None}
    facts["step_seconds"] = step.manifest.costs.get("seconds")
    facts["prefill_seconds"], facts["generation"] = None, str(step.generation)
    if prefill is not None:
        facts["prefill_seconds"] = seconds_of(prefill)
        facts["least_prompt"] = int(seconds_of(prefill) / seconds_of(step)) + 1
    for of, interface in (("", step.interface), ("step_", step.server.interface)):
        plan = keys_of(interface)
        parts = step.parameters.plan_memory(plan).items()
        facts[f"{of}rotation_keys"] = len(plan.rotations)
        facts[f"{of}key_bytes"] = sum(size for name, size in parts if name.endswith("keys"))
    return facts


def say_of_text(facts: Mapping[str, Any]) -> None:
    """Say what :func:`text_facts` knows."""
    say(f"text: of each step the {facts['head']} computes the head over the vocabulary (--head)")
    say(f"text: the client chooses tokens so: {facts['generation']}")
    if facts["least_prompt"] is None:
        why = facts["no_prefill"]
        say(f"text: each token of a prompt takes a step; there is no prefill: {why}")
        return
    say(
        f"text: a step is predicted to take {facts['step_seconds']:.3g} s; a prompt of "
        f"{facts['least_prompt']} tokens or more takes {facts['prefill_seconds']:.3g} s, all "
        "tokens at once"
    )
    sizes = [
        f"{facts[f'{of}rotation_keys']} rotation keys, all keys "
        f"{facts[f'{of}key_bytes'] / 2**30:.1f} GiB"
        for of in ("", "step_")
    ]
    say(f"text: {sizes[0]}; without a prefill (--without prefill) {sizes[1]}")


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print a program's costs in a few lines."""
    depth = "" if summary["depth"] is None else f"depth {summary['depth']}, "
    outside = f" (+{summary['levels_outside']} outside)" if summary["levels_outside"] else ""
    lines = [
        f"{depth}levels of nonlinear ops {summary['levels']}{outside}, "
        f"all levels {summary['levels_total']}",
        f"bootstraps {summary['bootstraps']}, key switches {summary['key_switches']}, products "
        f"with plaintexts {summary['plaintext_products']}, of ciphertexts "
        f"{summary['ciphertext_products']}",
    ]
    if "public_tokens" in summary:
        lines.append(
            f"the first {summary['public_tokens']} tokens are public: the server has their keys "
            "and values in the clear"
        )
    if summary["bootstrap_error"]:
        lines.append(
            f"errors of bootstraps change the outputs by {summary['bootstrap_error']:.1e} of their "
            "size (as root mean squares)"
        )
    if summary["safe_digits"] is not None:
        lines.append(
            f"digits of one answer that may be passed on, at 30 bits of security: "
            f"{summary['safe_digits']}"
        )
    keys = [f"rotation keys {summary['rotation_keys']}"]
    if summary["derived_rotations"]:
        keys.append(f"of which the server derives {summary['derived_rotations']}")
    if summary["composed_rotations"]:
        keys.append(f"rotations composed of others {summary['composed_rotations']}")
    if summary["bootstrap_rotations"]:
        keys.append(f"rotations done with the bootstrap key {summary['bootstrap_rotations']}")
    lines.append(", ".join(keys))
    if summary["memory"] is not None:
        parts = sorted(summary["memory"].items(), key=lambda part: -part[1])
        listed = ", ".join(
            f"{name.replace('_', ' ')} {size / 2**30:.2f}" for name, size in parts if size
        )
        whole = sum(summary["memory"].values())
        lines.append(f"about {whole / 2**30:.1f} GiB of memory: {listed}")
        moduli = summary["moduli"]
        lines.append(
            f"{summary['security_bits']} bits of security: "
            f"N = 2^{moduli['ring_degree'].bit_length() - 1}, log2(QP) {moduli['log_qp']:.0f}, "
            f"{moduli['special_primes']} special primes, {moduli['digits']} digits (dnum); "
            f"a key of {moduli['key_bytes'] / 2**20:.0f} MiB, a ciphertext of "
            f"{moduli['ciphertext_bytes'] / 2**20:.1f} MiB"
        )
    if summary.get("device_bytes") is not None:
        lines.append(
            f"kernels read and write {summary['device_bytes'] / 1e12:.3g} TB on the GPU (estimated)"
        )
    if summary["seconds"] is not None:
        lines.append(
            f"predicted on {summary['machine']}: {_duration(summary['seconds'])}, after "
            f"{_duration(summary['key_seconds'])} for the keys"
        )
    elif summary["memory"] is not None:
        lines.append(
            "no cost table for this target: seconds are not predicted (docs/costs.md says how to "
            "measure one, for --costs)"
        )
    say("\n".join(lines))


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"


def show_timing(timing: Timing) -> None:
    """Print seconds of one run by kind of op, and of the whole."""
    columns = ("op", "ops", "predicted s", "measured s", "predicted / measured")
    keys = ("kind", "ops", "predicted", "measured", "ratio")
    whole = timing.summary()
    print_table(columns, [[row[key] for key in keys] for row in whole["per_kind"]])
    predicted = "" if whole["predicted"] is None else f"; predicted {whole['predicted']:.4g} s"
    ratio = "" if whole["ratio"] is None else f", {whole['ratio']:.3g} times that"
    runs = "" if timing.runs == 1 else f", the mean of {timing.runs} runs"
    print(f"executed in {whole['measured']:.4g} s{runs}{predicted}{ratio}")
    if timing.simulated:
        print(
            "the measured seconds are those of a simulation, which encrypts nothing; the predicted "
            "seconds are those of real encryption"
        )


def print_labels(
    name: str, values: np.ndarray, function: str | None, names: Sequence[str], inputs: Sequence[Any]
) -> None:
    """Print the answers of a model whose labels count each by itself.

    Args:
        name: of the output.
        values: answers ``[inputs, labels]``; NaN without an answer.
        function: the final function of the output; None without one.
        names: names of the labels.
        inputs: the name or the number of each input.
    """
    from atlasc.loading.labels import THRESHOLD, probabilities, several_labels

    shares = probabilities(values, function)
    given = several_labels(shares, names)
    rows = [
        [one, labels if labels is None or labels else "none", *map(_known, row)]
        for one, labels, row in zip(inputs, given, shares, strict=True)
    ]
    print_table(["input", "labels", *names], rows, title=f"{name}: probability of each label")
    print(f"labels: those with a probability of {THRESHOLD} or more, each by itself")


def _known(number: float) -> float | None:
    return None if number != number else float(number)


def print_spans(names: Sequence[Any], spans: Sequence[Span | None]) -> None:
    """Print the part of its text that answers each question: its characters, counted from 0, and
    the sum of both logits.
    """
    missing = (None,) * 4
    rows = [
        (name, *(missing if one is None else (one.text, one.start, one.end, one.score)))
        for name, one in zip(names, spans, strict=True)
    ]
    print_table(["input", "answer", "from", "to", "score"], rows)


def spans_record(spans: Sequence[Span | None] | None) -> list[dict[str, Any] | None] | None:
    """Spans for JSON."""
    return None if spans is None else [None if one is None else vars(one) for one in spans]


def answers_record(answers: Answers, unchecked: bool) -> dict[str, Any]:
    """Outputs for JSON, and the rows without an answer, None in these unless ``unchecked``."""
    hidden = () if unchecked else answers.refused
    return {
        "outputs": outputs_record(answers.shown(True), hidden),
        "refused": list(answers.refused),
    }


def outputs_record(
    outputs: Mapping[str, np.ndarray], hidden: Collection[int]
) -> dict[str, list[Any]]:
    """Outputs for JSON, None in the hidden rows."""
    return {
        name: [None if row in hidden else value for row, value in enumerate(values)]
        for name, values in outputs.items()
    }


def end_with(
    refused: Mapping[int, float], names: Sequence[str] | None = None, unchecked: bool = False
) -> None:
    """Say which inputs have no answer, and exit with code 3 if their numbers were not shown.

    Args:
        refused: row of an input -> share of its slots that cannot be right.
        names: name of each input, by row.
        unchecked: whether the numbers were shown nevertheless.

    Raises:
        typer.Exit: there are such inputs, and their numbers were not shown.
    """
    if not refused:
        return
    called = {row: names[row] if names else f"input {row}" for row in refused}
    rows = [f"{called[row]}: {share:.1%} of its slots" for row, share in refused.items()]
    count = "1 input has no answer" if len(rows) == 1 else f"{len(rows)} inputs have no answer"
    show(
        "warning" if unchecked else "error",
        f"{count}: numbers far outside those of calibration, or copies that differ",
        "  why: " + "\n       ".join(rows) + "\n"
        "  what to do: ask again without the inputs that leave a range (atlasc check-input finds "
        "them), or compile\n       with data that has such inputs; --unchecked shows the numbers "
        "nevertheless. Do not tell the server.",
    )
    if not unchecked:
        raise typer.Exit(NO_ANSWER)


def say_of_ranges(found: Calibration) -> None:
    """Say how many levels certified ranges take, beside the ranges that inputs reach."""
    from atlasc.polynomials.range_levels import ERROR, as_seen, levels_of_ranges

    if {known.basis for known in found.ranges} != {"certified"}:
        return
    needed, seen = levels_of_ranges(found.ranges), levels_of_ranges([*map(as_seen, found.ranges)])
    say(
        f"all ranges hold for every input; polynomials with an error of {ERROR:.1%} take {needed} "
        f"levels on these ranges, and {seen} on the ranges that the inputs reach"
    )


def list_outliers(found: Sequence[Outlier]) -> None:
    """List the tokens and channels that stand out before norms."""
    from atlasc.calibration.calibrate import OUTLIER_TITLES

    if found:
        print_table(OUTLIER_TITLES, [one.row() for one in found])


def list_held_back(found: Calibration) -> None:
    """Say how many held-back inputs leave a range, and list the first of them."""
    if not found.held_back:
        return
    print(f"{found.leaving} of {found.held_back} held-back inputs leave a range")
    for violation in found.violations[:SHOWN_VIOLATIONS]:
        say(f"  {violation}")
    if len(found.violations) > SHOWN_VIOLATIONS:
        print(f"  and {len(found.violations) - SHOWN_VIOLATIONS} more")
