"""The shape of the repository: who may import whom, lazy imports, files that stay readable."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"ir": "atlasc.ir", "passes": "atlasc.passes", "atlasc": "atlasc"}

ALLOWED = {
    "ir": ("atlasc.ir",),
    "passes": ("atlasc.ir", "atlasc.passes"),
    "atlasc": ("atlasc",),
}
HEAVY = {"torch", "transformers", "desilofhe", "pymoo", "ray", "sklearn", "matplotlib"}
MAX_LINES = 400


def sources(folder: str) -> list[Path]:
    """Python files of a folder, not those behind the links atlasc/ir and atlasc/passes."""
    linked = (ROOT / "atlasc" / "ir", ROOT / "atlasc" / "passes")
    return [
        path
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(path.is_relative_to(link) for link in linked)
    ]


ALL_SOURCES = [(folder, path) for folder in FOLDERS for path in sources(folder)]


def module_name(folder: str, path: Path) -> str:
    parts = path.relative_to(ROOT / folder).with_suffix("").parts
    return ".".join((FOLDERS[folder], *parts)).removesuffix(".__init__")


def imported(name: str, path: Path, nodes: Iterator[ast.AST]) -> set[str]:
    """Absolute names of what the import statements among ``nodes`` import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                parents = package[: len(package) - node.level + 1]
                base = ".".join((*parents, base)).rstrip(".")
            # "from atlasc import ir" imports atlasc.ir.
            found |= (
                {f"{base}.{alias.name}" for alias in node.names} if base == "atlasc" else {base}
            )
    return found


def top_level(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported: not in functions, not under TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from top_level(node)


def test_the_sources_are_found() -> None:
    assert {folder for folder, _ in ALL_SOURCES} == set(FOLDERS)
    assert (ROOT / "atlasc/ir").resolve() == ROOT / "ir"
    assert (ROOT / "atlasc/passes").resolve() == ROOT / "passes"


def test_relative_and_nested_imports_are_seen() -> None:
    text = (
        "from . import a\nfrom ..ir import b\ndef f():\n    import torch\nfrom atlasc import driver"
    )
    tree = ast.parse(text)
    path = Path("passes/x/y.py")
    assert imported("atlasc.passes.x.y", path, ast.walk(tree)) == {
        "atlasc.passes.x",
        "atlasc.passes.ir",
        "torch",
        "atlasc.compilation.stages",
    }
    assert "torch" not in imported("atlasc.passes.x.y", path, top_level(tree))


@pytest.mark.parametrize("folder", FOLDERS)
def test_dependency_rule(folder: str) -> None:
    faults = []
    for path in sources(folder):
        name = module_name(folder, path)
        for target in imported(name, path, ast.walk(ast.parse(path.read_text()))):
            inside = target == "atlasc" or target.startswith("atlasc.")
            allowed = any(target == a or target.startswith(f"{a}.") for a in ALLOWED[folder])
            if (inside and not allowed) or target.split(".")[0] in ("ir", "passes"):
                faults.append(f"{path.relative_to(ROOT)} imports {target}")
    assert not faults


@pytest.mark.parametrize("folder", FOLDERS)
def test_heavy_libraries_are_imported_inside_functions(folder: str) -> None:
    faults = []
    for path in sources(folder):
        tree = ast.parse(path.read_text())
        names = imported(module_name(folder, path), path, top_level(tree))
        heavy = sorted(HEAVY & {name.split(".")[0] for name in names})
        faults += [f"{path.relative_to(ROOT)} imports {name} at its top level" for name in heavy]
    assert not faults


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
