"""Labelled inputs of four kinds, each from two sources: one that the model was trained on, and one
that it never saw. All are made from a seed, so nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MONTHS, CHANNELS = 12, 6
WATERS = ("clear", "algae", "turbid")
GOOD = ("warm", "kind", "quick", "clean", "bright", "honest", "careful", "fresh", "quiet", "lovely")
BAD = ("cold", "rude", "slow", "dirty", "dull", "broken", "careless", "stale", "noisy", "dreadful")
THINGS = (
    "room",
    "meal",
    "staff",
    "screen",
    "lamp",
    "story",
    "sound",
    "coffee",
    "price",
    "garden",
    "bed",
    "lift",
)
PARTS = ("CC", "CCC", "c1ccccc1", "CCOC", "C1CCCC1", "c1ccncc1", "CC(C)C", "COc1ccccc1")
REACTIONS = {
    "amide": "{0}C(=O)O.N{1}>>{0}C(=O)N{1}",
    "ester": "{0}C(=O)O.O{1}>>{0}C(=O)O{1}",
    "bromination": "{0}.BrBr>>{0}Br",
    "coupling": "{0}Br.OB(O){1}>>{0}{1}",
    "reduction": "{0}C(=O){1}>>{0}C(O){1}",
    "protection": "{0}N.CC(C)(C)OC(=O)Cl>>{0}NC(=O)OC(C)(C)C",
}
SOLVENTS = ("CN(C)C=O", "CCO", "ClCCl", "C1CCOC1", "O")
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
CHAINS = {
    "heavy 1": "QVQLVQSGAEVKKPGASVKVSCKAS",
    "heavy 3": "EVQLVESGGGLVQPGGSLRLSCAAS",
    "heavy 4": "QVQLQESGPGLVKPSETLSLTCTVS",
    "kappa 1": "DIQMTQSPSSLSASVGDRVTITC",
    "kappa 3": "EIVLTQSPGTLSLSPGERATLSC",
    "lambda 1": "QSVLTQPPSVSAAPGQKVTISC",
    "lambda 2": "QSALTQPASVSGSPGQSITISC",
}
"""The first framework of human antibodies, by family."""


class Rows(NamedTuple):
    """Inputs, as arrays or texts, and the number of each one's class."""

    inputs: np.ndarray | list[str]
    labels: np.ndarray


def waters(count: int, seed: int, *, shifted: bool = False) -> Rows:
    """A year of reflectances of lakes, [count, months, channels]; shifted: another sensor, with
    other gains and more noise.
    """
    random = np.random.default_rng([seed, 1])
    labels = random.integers(0, len(WATERS), count)
    kinds = np.random.default_rng(7)  # what a class looks like is the same for all seeds
    level, swing = kinds.uniform(0.2, 0.8, (2, len(WATERS), CHANNELS))
    phase = 2 * np.pi * (np.arange(MONTHS) / MONTHS + random.normal(scale=0.08, size=(count, 1)))
    season = np.sin(phase)[..., None] * swing[labels][:, None]
    made = level[labels][:, None] + season * random.uniform(0.2, 1.2, (count, 1, 1))
    made += random.normal(scale=0.3 if shifted else 0.25, size=made.shape)
    made += random.normal(scale=0.2, size=(count, 1, CHANNELS))
    if shifted:
        made = made * random.uniform(0.9, 1.1, CHANNELS) + random.normal(scale=0.05, size=CHANNELS)
    return Rows(made.astype(np.float32), labels)


def reviews(count: int, seed: int, *, shifted: bool = False) -> Rows:
    """Texts in favour or against, with negations; what follows a "but" counts. Shifted: longer
    ones, of other words between the ones that matter.
    """
    random = np.random.default_rng([seed, 2])

    def clause(good: bool) -> str:
        denied = random.random() < 0.3
        adjective = random.choice(GOOD if good != denied else BAD)
        verb = random.choice(["is", "was", "seemed"] if not shifted else ["was", "stayed", "felt"])
        return f"the {random.choice(THINGS)} {verb} {'not ' * denied}{adjective}"

    labels, texts = random.integers(0, 2, count), []
    for label in labels:
        last = clause(bool(label))
        other = random.random() < 0.5
        text = f"{clause(not label)} but {last}" if other else f"{clause(bool(label))} and {last}"
        if shifted:
            text = f"on {random.choice(['monday', 'sunday'])} we came back and {text} they said"
        if random.random() < 0.04:  # a few that no model can know
            text = text.replace(random.choice(GOOD + BAD), "odd")
        texts.append(text)
    return Rows(texts, labels)


def reactions(count: int, seed: int, *, shifted: bool = False) -> Rows:
    """Strings like those of reactions; shifted: in another order, and with a solvent."""
    random = np.random.default_rng([seed, 3])
    labels, texts, kinds = random.integers(0, len(REACTIONS), count), [], [*REACTIONS.values()]
    for label in labels:
        before, after = kinds[label].format(*random.choice(PARTS, 2)).split(">>")
        if shifted:
            before = ".".join([*before.split(".")[::-1], random.choice(SOLVENTS)])
        texts.append(f"{before}>>{after}")
    return Rows(texts, labels)


def antibodies(count: int, seed: int, *, shifted: bool = False) -> Rows:
    """Beginnings of antibodies with mutations, and a random loop; shifted: with twice as many."""
    random = np.random.default_rng([seed, 4])
    labels, texts, chains = random.integers(0, len(CHAINS), count), [], [*CHAINS.values()]
    for label in labels:
        framework = chains[label][random.integers(0, 4) :]
        kept = random.random(len(framework)) > (0.5 if shifted else 0.25)
        others = random.choice([*RESIDUES], len(framework))
        loop = random.choice([*RESIDUES], random.integers(6, 14))
        texts.append("".join([*np.where(kept, [*framework], others), *loop]))
    return Rows(texts, labels)


def with_labels(rows: Rows, names: Sequence[str]) -> object:
    """Rows as `evaluate` takes them."""
    if isinstance(rows.inputs, np.ndarray):
        return {"x": rows.inputs, "labels": rows.labels}
    return [
        {"text": text, "label": names[label]}
        for text, label in zip(rows.inputs, rows.labels, strict=True)
    ]
