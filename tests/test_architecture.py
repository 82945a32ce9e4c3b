"""The shape of the repository: who may import whom, lazy imports, files that stay readable."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import networkx
import pytest

from tests.suite.imports import ROOT, imported, module_name, sources, top_level

FOLDERS = {
    "ir": "atlasc.ir",
    "passes": "atlasc.passes",
    "atlasc": "atlasc",
    "plugins/atlasc_comparisons": "atlasc_comparisons",
}

ALLOWED = {
    "ir": ("atlasc.ir",),
    "passes": (
        "atlasc.ir",
        "atlasc.program",
        "atlasc.calibration",
        "atlasc.polynomials",
        "atlasc.simulation",
        "atlasc.analyses",
        "atlasc.passes",
    ),
    "atlasc": ("atlasc",),
    "plugins/atlasc_comparisons": ("atlasc", "atlasc_comparisons"),
}
HEAVY = {"torch", "transformers", "desilofhe", "pymoo", "ray", "sklearn", "matplotlib"}
MAX_LINES = 400
MAX_MODULES = 15
"""Of one folder."""
COMPILER = {"passes", "calibration", "analyses", "search", "latency", "compilation", "emit"}
"""Folders that no role needs: neither a client nor a server of a program."""
MOST_OF_ROLES = 90
"""Modules of atlasc that the roles import."""

# What is still to be mended. Delete a line as soon as what it names is gone: a test says so.
KNOWN_CYCLES: set[tuple[str, str]] = set()
"""Two modules of each cycle of modules."""
KNOWN_FOLDER_CYCLES: set[tuple[str, str]] = set()
"""Two folders of each cycle of folders that lie in one folder."""


ALL_SOURCES = [(folder, path) for folder in FOLDERS for path in sources(folder)]


MODULES = {module_name(folder, FOLDERS[folder], path): path for folder, path in ALL_SOURCES}
NAMES = {path: name for name, path in MODULES.items()}


def test_the_sources_are_found() -> None:
    assert {folder for folder, _ in ALL_SOURCES} == set(FOLDERS)
    assert (ROOT / "atlasc/ir").resolve() == ROOT / "ir"
    assert (ROOT / "atlasc/passes").resolve() == ROOT / "passes"


def test_relative_and_nested_imports_are_seen() -> None:
    text = "from . import a\nfrom ..ir import b\ndef f():\n    import torch\n"
    text += "from atlasc import emit, gone"
    tree = ast.parse(text)
    path = Path("passes/x/y.py")
    assert imported("atlasc.passes.x.y", path, ast.walk(tree), MODULES) == {
        "atlasc.passes.x",
        "atlasc.passes.ir",
        "torch",
        "atlasc",
        "atlasc.emit",
    }
    assert "torch" not in imported("atlasc.passes.x.y", path, top_level(tree), MODULES)


@pytest.mark.parametrize("folder", FOLDERS)
def test_dependency_rule(folder: str) -> None:
    faults = []
    for path in sources(folder):
        for target in imported(NAMES[path], path, ast.walk(ast.parse(path.read_text())), MODULES):
            inside = target.split(".")[0] in ("atlasc", "atlasc_comparisons")
            allowed = any(target == a or target.startswith(f"{a}.") for a in ALLOWED[folder])
            if (inside and not allowed) or target.split(".")[0] in ("ir", "passes"):
                faults.append(f"{path.relative_to(ROOT)} imports {target}")
    assert not faults


@pytest.mark.parametrize("folder", FOLDERS)
def test_heavy_libraries_are_imported_inside_functions(folder: str) -> None:
    faults = []
    for path in sources(folder):
        tree = ast.parse(path.read_text())
        names = imported(NAMES[path], path, top_level(tree), MODULES)
        heavy = sorted(HEAVY & {name.split(".")[0] for name in names})
        faults += [f"{path.relative_to(ROOT)} imports {name} at its top level" for name in heavy]
    assert not faults


def module_graph() -> networkx.DiGraph:
    """Which module imports which, in functions and under TYPE_CHECKING too."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(MODULES)
    for name, path in MODULES.items():
        targets = imported(name, path, ast.walk(ast.parse(path.read_text())), MODULES)
        graph.add_edges_from((name, target) for target in targets & MODULES.keys())
    return graph


def folder_graph() -> networkx.DiGraph:
    """Which folder imports which other folder of the same parent, with all that lies below them."""
    graph = networkx.DiGraph()
    for one, other in module_graph().edges:
        places = [package(name).split(".") for name in (one, other)]
        depth = next((i for i, (a, b) in enumerate(zip(*places)) if a != b), None)
        if depth is not None:
            graph.add_edge(*(".".join(place[: depth + 1]) for place in places))
    return graph


def package(name: str) -> str:
    """The package that a module is, or lies in."""
    return name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]


def report_cycles(graph: networkx.DiGraph, known: set[tuple[str, str]], what: str) -> None:
    """Fail with one path around each cycle that is not known, and with what is known no more."""
    cyclic = [group for group in networkx.strongly_connected_components(graph) if len(group) > 1]
    lines = []
    for group in cyclic:
        if any(group >= set(pair) for pair in known):
            continue
        around = networkx.find_cycle(graph.subgraph(group))
        lines.append(
            f"{len(group)} {what} import each other: "
            + " -> ".join([*(one for one, _ in around), around[0][0]])
        )
    lines += [
        f"{' and '.join(pair)} are in no cycle any more: delete the pair from the list of this test"
        for pair in sorted(known)
        if not any(group >= set(pair) for group in cyclic)
    ]
    remedy = "Move what both need into a file below them, or pass it as an argument."
    assert not lines, "\n".join([*lines, remedy])


def test_no_import_cycle() -> None:
    report_cycles(module_graph(), KNOWN_CYCLES, "modules")


def test_no_cycle_of_neighbouring_folders() -> None:
    report_cycles(folder_graph(), KNOWN_FOLDER_CYCLES, "folders")


def test_a_cycle_is_reported_with_its_path() -> None:
    graph = networkx.DiGraph(pairwise("abca"))
    with pytest.raises(AssertionError, match=r"3 modules import each other: \w -> \w -> \w -> \w"):
        report_cycles(graph, set(), "modules")
    report_cycles(graph, {("a", "b")}, "modules")
    with pytest.raises(AssertionError, match="c and d are in no cycle any more"):
        report_cycles(graph, {("a", "b"), ("c", "d")}, "modules")


CODE = {".py", ".cpp", ".hpp", ".h", ".cu", ".cuh"}


def modules_of_folders() -> dict[str, set[str]]:
    """The modules of each folder of code, in any language: a header and its source are one."""
    found: dict[str, set[str]] = {}
    roots = (ROOT / name for name in (*FOLDERS, "runtime_cuda", "benchmarks", "examples", "tests"))
    for path in (path for root in roots for path in root.rglob("*")):
        if path.suffix in CODE and path.name != "__init__.py":
            folder = path.resolve().parent.relative_to(ROOT)
            found.setdefault(str(folder), set()).add(path.stem)
    return found


def test_folders_stay_small() -> None:
    counts = Counter({folder: len(names) for folder, names in modules_of_folders().items()})
    assert counts["runtime_cuda/ckks"] and counts["tests/runtime_cuda/ckks"] and counts["ir"]
    large = {folder: count for folder, count in counts.items() if count > MAX_MODULES}
    assert not large, (
        f"more than {MAX_MODULES} modules lie in {large}: split these folders by what their files "
        "do"
    )


def test_no_cycle_of_cpp_folders() -> None:
    """By the paths that files include; ``kernel.hpp`` is that of the device of a build."""
    runtime, graph = ROOT / "runtime_cuda", networkx.DiGraph()
    for path in runtime.rglob("*.[chc][pu]*"):
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            for root in (runtime / "include", runtime, path.parent):
                if (root / name).exists() and (root / name).parent.resolve() != path.parent:
                    graph.add_edge(
                        str(path.parent.relative_to(runtime)),
                        str((root / name).parent.resolve().relative_to(runtime)),
                    )
                    break
    assert graph.has_edge("ckks", "ckks/keys") and graph.has_edge("ckks/keys", "ckks/ring")
    report_cycles(graph, set(), "C++ folders")


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for _, path in ALL_SOURCES}
    assert [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()] == []


def test_files_stay_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for _, path in ALL_SOURCES
    }
    assert {path: n for path, n in lengths.items() if n > MAX_LINES} == {}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from atlasc.cli import app\n"
        "sys.argv = ['atlasc', '--help']\n"
        "try:\n    app(prog_name='atlasc')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Usage: atlasc" in done.stdout
    loaded = set(ast.literal_eval(done.stderr.strip().splitlines()[-1]))
    assert loaded & (HEAVY | {"numpy", "scipy", "lark", "rich", "mpmath", "safetensors"}) == set()


@pytest.mark.parametrize(
    "folder", ["bundle", "client", "program", "remote", "runtime", "service", "targets"]
)
def test_walls_of_the_roles(folder: str) -> None:
    """Not even inside a function, where a test that imports them sees nothing."""
    faults = [
        f"{path.relative_to(ROOT)} imports {target}"
        for name, path in MODULES.items()
        if name.startswith(f"atlasc.{folder}")
        for target in imported(name, path, ast.walk(ast.parse(path.read_text())), MODULES)
        if f"{target}..".split(".")[1] in COMPILER and target.startswith("atlasc.")
    ]
    assert faults == []


def test_roles_import_no_compiler() -> None:
    """A client and a server start without a search, a pass of the frontend, or a large library."""
    code = (
        "import sys\nimport atlasc.api.roles\n"
        "print([name for name in sys.modules if name.split('.')[0] in sys.argv[1:]])"
    )
    command = [sys.executable, "-c", code, "atlasc", *HEAVY, "scipy", "networkx", "mpmath"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = ast.literal_eval(done.stdout)
    assert [name for name in loaded if not name.startswith("atlasc")] == []
    assert len(loaded) <= MOST_OF_ROLES
    assert [
        name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in COMPILER
    ] == []
