"""Which classes are taken for which: by the model and by the program, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

FEW = 10
"""Greatest number of classes of which the whole matrix is shown."""
TOP = 10
"""Number of confusions that are shown of more classes."""
NONE = "no answer"
"""The column of answers that are not finite."""


@dataclass(frozen=True)
class OfClass:
    """The labelled inputs of one class.

    Attributes:
        name: name of the class.
        inputs: their number.
        model, program: how many of them the model and the program answer rightly.
    """

    name: str
    inputs: int
    model: int
    program: int


@dataclass(frozen=True)
class Cell:
    """A cell of the confusion matrix.

    Attributes:
        label: name of the true class.
        answer: name of the class that is answered, or `NONE`.
        model, program: how many inputs of the label the model and the program answer so.
    """

    label: str
    answer: str
    model: int
    program: int

    @property
    def differs(self) -> bool:
        """Whether model and program count differently."""
        return self.model != self.program


@dataclass(frozen=True)
class Confusion:
    """The confusion matrices of a model and of its program.

    Attributes:
        classes: one row for each class that a label names, in order.
        cells: the cells in which the model or the program has an input, by label and answer.
    """

    classes: tuple[OfClass, ...]
    cells: tuple[Cell, ...]

    @property
    def differing(self) -> tuple[OfClass, ...]:
        """The classes whose inputs model and program answer differently."""
        found = {cell.label for cell in self.cells if cell.differs}
        return tuple(one for one in self.classes if one.name in found)

    @property
    def shown(self) -> tuple[OfClass, ...]:
        """The classes that a table shows: all, or of many those that differ."""
        return self.classes if len(self.classes) <= FEW else self.differing

    @property
    def top(self) -> tuple[Cell, ...]:
        """The most frequent wrong answers; those that differ first."""
        wrong = [cell for cell in self.cells if cell.label != cell.answer]
        wrong.sort(key=lambda cell: (not cell.differs, -max(cell.model, cell.program)))
        return tuple(wrong[:TOP])

    @property
    def matrix(self) -> tuple[list[str], list[list[str]]] | None:
        """Heads and rows of the whole matrix, labels down and answers across; None for many.

        A cell has the program's count, or "model | program" where they differ.
        """
        answers = in_order({cell.answer for cell in self.cells} | {c.name for c in self.classes})
        if len(answers) > FEW + 1:
            return None
        known = {(cell.label, cell.answer): cell for cell in self.cells}

        def text(cell: Cell | None) -> str:
            if cell is None:
                return "–"
            return f"{cell.model} | {cell.program}" if cell.differs else str(cell.program)

        rows = [
            [one.name, *(text(known.get((one.name, answer))) for answer in answers)]
            for one in self.classes
        ]
        return ["label", *answers], rows


def confusion(
    answered: Iterable[tuple[str | float | None, str | float | None, str | float | None]],
) -> Confusion | None:
    """The confusions of inputs: the names of their label, the model's class and the program's.

    An input without a label does not count; None if no input has one.
    """
    by_model, by_program = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for label, model, program in answered:
        if label is not None:
            for counter, answer in ((by_model, model), (by_program, program)):
                counter[str(label), NONE if answer is None else str(answer)] += 1
    if not by_model:
        return None
    labels = in_order({label for label, _ in by_model})
    return Confusion(
        tuple(
            OfClass(
                name,
                sum(count for (label, _), count in by_model.items() if label == name),
                by_model[name, name],
                by_program[name, name],
            )
            for name in labels
        ),
        tuple(
            Cell(label, answer, by_model[label, answer], by_program[label, answer])
            for label in labels
            for answer in in_order({a for name, a in by_model | by_program if name == label})
        ),
    )


def in_order(names: Iterable[str]) -> list[str]:
    """Names of classes: numbers by their value before words by the alphabet, `NONE` at the end."""
    return sorted(
        names, key=lambda n: (n == NONE, not n.isdecimal(), int(n) if n.isdecimal() else 0, n)
    )
