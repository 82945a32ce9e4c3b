"""The folder to submit to the public harness of the BERT workload, by one command.

    python -m benchmarks.he_bert.submission --target cpu --calibration PAIRS -o FOLDER
    python -m benchmarks.he_bert.submission --measurements DIR -o FOLDER

The first compiles the model, and writes everything that stands in the harness's `submissions`: a
script for each stage, the compiled program, the sources of atlasc and what installs them, the
parameters, README and licence. The second writes README again, with what the harness measured on
this machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import atlasc
from atlasc.bundle.manifest import ROLES
from atlasc.files import new_folder, require_new, write_text
from atlasc.loading.models import load_model
from benchmarks.he_bert import stages
from benchmarks.he_bert.evidence import facts_of, measured_in, quality_of, readme
from benchmarks.he_bert.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
MODEL = "google-bert/bert-base-cased-finetuned-mrpc"
TOKENS = 128
FACTS, README = "parameters.json", "README.md"
SOURCES = (
    "atlasc", "docs", "ir", "passes", "runtime_cuda", "LICENSE", "MANIFEST.in", "Makefile",
    "README.md", "constraints.txt", "pyproject.toml", "setup.py",
)  # fmt: skip
"""What the archive of atlasc is made of."""
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
HARNESS = ("absl-py==2.5.1", "datasets==5.2.0", "numpy", "torch", "transformers")
"""What the harness imports; `constraints.txt` has the other versions."""
SCRIPT = '''\
"""{summary}"""

import stages

stages.main("{name}")
'''
INSTALL = """\
#!/bin/sh
# Installs atlasc with the engine {engine}, and what the harness imports, where python3 is the
# Python that will start the harness. It needs {tools}, and no network but pip's.
set -eu
cd -- "$(dirname -- "$0")"
export ATLASC_ENGINE={engine}{more}
python3 -m pip install -c constraints.txt ./{archive} -r requirements.txt
"""
TOOLS = {"cpu": "a C++17 compiler", "cuda": "a C++17 compiler, CUDA and the GPU"}
MORE = {"cpu": "", "cuda": ' CUDAARCHS="${CUDAARCHS:-native}"'}
"""By engine: what builds it, and further settings of the build."""


def main() -> None:
    """Command line."""
    arguments = parsed()
    try:
        if arguments.measurements is not None:
            renew(arguments.output, arguments.measurements, arguments.machine)
        else:
            make(arguments)
    except atlasc.AtlasError as error:
        raise SystemExit(str(error)) from error
    print(f"written to {arguments.output}")


def parsed() -> argparse.Namespace:
    """Arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.he_bert.submission",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default=MODEL, help=f"a folder or a cached name [{MODEL}]")
    parser.add_argument("--calibration", metavar="FILE", help="training pairs, for the ranges")
    parser.add_argument("--labelled", metavar="FILE", help="pairs with labels: accuracy in advance")
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"of a pair [{TOKENS}]")
    parser.add_argument("--recipe", help="settings instead of a search")
    parser.add_argument(
        "--measurements", type=Path, metavar="DIR", help="of the harness: write README again"
    )
    parser.add_argument("--machine", help="of the measurements, in words [this one, without GPU]")
    found = parser.parse_args()
    if (found.calibration is None) == (found.measurements is None):
        parser.error("give --calibration to make the folder, or --measurements to renew its README")
    return found


def make(arguments: argparse.Namespace) -> None:
    """Compile the model and write the folder.

    Raises:
        AtlasError: the folder exists, the model or the pairs are refused.
    """
    require_new(arguments.output)
    require_shape(arguments.model, arguments.tokens)
    program = atlasc.compile(
        arguments.model, arguments.calibration, recipe=arguments.recipe, target=arguments.target,
        sequence_length=arguments.tokens,
    )  # fmt: skip
    quality = quality_of(program, arguments.labelled) if arguments.labelled else None
    write(program, arguments.output, facts_of(program, str(arguments.model), quality))


def require_shape(model: str, tokens: int) -> None:
    """Refuse a model that does not give a pair one of two classes, before hours of search.

    Raises:
        AtlasError: it does not, or there is no such model.
    """
    loaded = load_model(model, weights=False)
    kind, config = type(loaded.module).__name__, loaded.config
    faults = []
    if not kind.endswith("ForSequenceClassification"):
        faults.append(f"it is a {kind}")
    elif getattr(config, "num_labels", None) != 2:
        faults.append(f"it has {getattr(config, 'num_labels', 'no')} classes")
    longest = getattr(config, "max_position_embeddings", tokens)
    if longest < tokens:
        faults.append(f"it reads {longest} tokens, not {tokens}")
    if faults:
        raise atlasc.AtlasError(
            f"{model} is no model of this workload",
            why="; ".join(faults),
            remedy="give a model that was fine-tuned to tell two classes of pairs (MRPC), "
            "or fewer --tokens",
        )


def write(program: atlasc.Program, folder: Path, facts: dict[str, Any]) -> None:
    """The whole folder of a compiled program, which appears whole or not at all.

    Raises:
        AtlasError: the folder exists or cannot be written.
    """
    with new_folder(folder) as draft:
        write_stages(program, draft)
        archive = write_sources(draft)
        engine = facts["engine"]
        text = INSTALL.format(
            engine=engine, archive=archive, tools=TOOLS[engine], more=MORE[engine]
        )
        install = draft / "install.sh"
        install.write_text(text, encoding="utf-8")
        install.chmod(0o755)
        (draft / "requirements.txt").write_text("\n".join(HARNESS) + "\n", encoding="utf-8")
        for name in ("constraints.txt", "LICENSE"):
            shutil.copyfile(ROOT / name, draft / name)
        facts = {**facts, "archive": archive}
        (draft / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (draft / README).write_text(readme(facts), encoding="utf-8")


def write_stages(program: atlasc.Program, folder: Path) -> None:
    """What runs: a script for each stage, and the program in the parts of client and server.

    Raises:
        AtlasError: a part cannot be written.
    """
    (folder / "program").mkdir(parents=True)
    for role in ROLES:
        program.save(folder / "program" / role, role)
    shutil.copyfile(stages.__file__, folder / "stages.py")
    for stage in STAGES:
        summary = (stage.__doc__ or "").partition(".")[0].strip() + "."
        text = SCRIPT.format(summary=" ".join(summary.split()), name=stage.__name__)
        (folder / f"{stage.__name__}.py").write_text(text, encoding="utf-8")


def write_sources(folder: Path) -> str:
    """The archive of atlasc's sources, which pip builds; its name.

    They are copied first, so that what was built among them is neither used nor left behind.
    """
    with TemporaryDirectory() as scratch:
        copied = Path(scratch) / "atlasc"
        copied.mkdir()
        skipped = shutil.ignore_patterns("__pycache__", "*.so")
        for name in SOURCES:
            source = ROOT / name
            if source.is_file():
                shutil.copyfile(source, copied / name)
            else:
                shutil.copytree(source, copied / name, symlinks=True, ignore=skipped)
        words = [sys.executable, "-c", BUILD, str(folder.resolve())]
        done = subprocess.run(words, cwd=copied, capture_output=True, text=True, check=False)
    if done.returncode:
        raise atlasc.AtlasError("the archive of atlasc could not be made", why=done.stderr)
    return done.stdout.split()[-1]


def renew(folder: Path, measurements: Path, machine: str | None) -> None:
    """Write README again, with the harness's records of a machine; None: of this one.

    Raises:
        AtlasError: the folder is none of this command's, there are no records, or nobody says which
            GPU they are of.
    """
    place = folder / FACTS
    if not place.is_file():
        raise atlasc.AtlasError(
            f"{folder} is no folder of a submission",
            why=f"it has no {FACTS}",
            remedy="make it first, with --calibration",
        )
    facts = json.loads(place.read_text(encoding="utf-8"))
    if facts["engine"] == "cuda" and machine is None:
        raise atlasc.AtlasError(
            "the machine of the measurements is not known", remedy="name it and its GPU: --machine"
        )
    measured = measured_in(measurements)
    if machine is not None:
        measured["machine"] = machine
    write_text(folder / README, readme(facts, measured))


if __name__ == "__main__":
    main()
