"""How much accuracy each level and each second buys: a fine-tuned BERT of 12 layers on reactions.

    python examples/reactions/fronts.py build/reactions

Searches the model twice, for depth and for seconds, and measures every point of both fronts on 400
reactions that neither calibration nor search saw, beside the setting `is` and published recipes.
Writes `accuracy.json` and `accuracy.png` into the folder. Then it compiles the program that the
defaults give, evaluates it, and answers one reaction on ciphertexts. What is there already is not
done again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlasc.compilation.prepare import PreparedModel
    from atlasc.polynomials.description import Approximation
    from atlasc.search.validation import Validation

HERE = Path(__file__).parent
LENGTH = 128
RECIPES = ("is", "nexus", "thor", "moai", "arion", "polaris")
COSTS = ("depth", "latency")


def atlasc(*arguments: object) -> None:
    """A command of atlasc; a failed one ends this script."""
    command = [sys.executable, "-m", "atlasc", *map(str, arguments)]
    print("$ atlasc", *command[3:], flush=True)
    if code := subprocess.run(command, check=False).returncode:
        raise SystemExit(code)


class Measured:
    """Settings of the model on the test reactions.

    Attributes:
        accuracy: of the model in the clear.
    """

    def __init__(self, folder: Path) -> None:
        from atlasc.api.progress import progress
        from atlasc.compilation.fronts import load_front
        from atlasc.compilation.options import CompileOptions
        from atlasc.compilation.prepare import prepare
        from atlasc.compilation.search import search_problem
        from atlasc.loading.data import inputs_of
        from atlasc.loading.labels import labels_of
        from atlasc.search.validation import Validator

        self.fronts = {cost: load_front(folder / f"front-{cost}") for cost in COSTS}
        saved = self.fronts["latency"]
        options = CompileOptions(sequence_length=LENGTH, cost="latency")
        self.prepared: PreparedModel = prepare(
            folder / "model", folder / "calibration.tsv", options, progress, saved
        )
        model = self.prepared.source.model
        rows = inputs_of(folder / "test.tsv", model, LENGTH)
        self._problem = search_problem(self.prepared, options)
        self._objective = self._problem.objective()
        labels = labels_of(rows, model.config, "class", model.config.num_labels).values
        with progress("the model on the test reactions"):
            self._validator = Validator(
                self.prepared.module, rows.arrays,
                measure="class", varying=saved.front.variation, labels=labels,
            )  # fmt: skip
        self.accuracy = self._validator.model_accuracy

    def recipe(self, name: str) -> dict[str, Any]:
        """A row of the table for a published recipe."""
        from atlasc.passes.approximation.approximate import recipe_approximations

        module, calibration = self.prepared.module, self.prepared.calibration
        found = recipe_approximations(module, name, calibration)
        return {"setting": name, **self._row(found)}

    def points(self, cost: str, done: Callable[..., object]) -> list[dict[str, Any]]:
        """A row for each point of a front, from cheap to accurate."""
        from atlasc.passes.approximation.approximate import settings_approximations

        saved, rows = self.fronts[cost], []
        for point in saved.front.points:
            found = settings_approximations(
                self.prepared.module, point.settings, saved.calibration, saved.front.parametrisation
            )
            rows.append({"setting": f"front by {cost}", **self._row(found, point.error)})
            done()
        return rows

    def _row(
        self, approximations: Mapping[str, Approximation], error: float = float("inf")
    ) -> dict[str, float | None]:
        depth, levels = self._objective.costs(dict(approximations))
        latency = self._problem.latency_model
        assert latency is not None
        found: Validation = self._validator.measure(approximations, error)
        row = {
            "depth": depth,
            "levels": levels,
            "seconds": latency.seconds(dict(approximations)),
            "accuracy": found.accuracy,
            "agreement": found.agreement,
            "exploded": found.exploded,
            "error": found.error,
        }
        # A program may fit no parameters, and an input that explodes has no error.
        return {name: value if value < float("inf") else None for name, value in row.items()}


def plot(rows: list[dict[str, Any]], accuracy: float, path: Path) -> None:
    """Accuracy over depth and over seconds."""
    from atlasc.search.front import chart

    with chart(path, 2) as panels:
        for axes, cost in zip(panels, ("depth", "seconds"), strict=True):
            kind = "depth" if cost == "depth" else "latency"
            own = [row for row in rows if row["setting"] == f"front by {kind}"]
            costs, shares = [row[cost] for row in own], [row["accuracy"] for row in own]
            axes.step(costs, shares, where="post", marker=".")
            axes.axhline(accuracy, linestyle=":", color="tab:grey")
            for row in rows:
                if row["setting"] in RECIPES and row[cost] is not None:
                    axes.scatter(row[cost], row["accuracy"], color="tab:orange")
                    axes.annotate(row["setting"], (row[cost], row["accuracy"]))
            axes.set(xlabel=cost, ylabel="accuracy on 400 reactions")


def main() -> None:
    """Do what is not done yet."""
    from atlasc.api.progress import progress
    from atlasc.cli.output import print_table

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if not (folder / "test.tsv").exists():
        subprocess.run([sys.executable, str(HERE / "prepare.py"), str(folder)], check=True)
    model, data = folder / "model", folder / "calibration.tsv"
    common = (model, "--data", data, "--sequence-length", LENGTH)
    for cost in COSTS:
        if not (folder / f"front-{cost}").exists():
            atlasc("search", *common, "--cost", cost, "-o", folder / f"front-{cost}")
    figures = folder / "accuracy.json"
    if not figures.exists():
        measured = Measured(folder)
        points = sum(len(saved.front.points) for saved in measured.fronts.values())
        with progress("settings on the test reactions", points + len(RECIPES)) as step:
            rows = []
            for name in RECIPES:
                rows.append(measured.recipe(name))
                step()
            for cost in COSTS:
                rows += measured.points(cost, step)
        figures.write_text(json.dumps({"model": measured.accuracy, "rows": rows}, indent=1) + "\n")
    known = json.loads(figures.read_text())
    print_table([*known["rows"][0]], [tuple(row.values()) for row in known["rows"]])
    print(f"the model in the clear: {known['model']:.2%}")
    plot(known["rows"], known["model"], folder / "accuracy.png")
    program = folder / "program"
    if not program.exists():
        atlasc("compile", *common, "-o", program)
    atlasc("evaluate", program, "--input", folder / "test.tsv", "-o", folder / "evaluation.html")
    atlasc("run", program, "--input", folder / "test.tsv", "--index", 0)


if __name__ == "__main__":
    main()
