"""Which module imports which, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def sources(folder: str) -> list[Path]:
    """Python files of a folder, not those behind the links atlasc/ir and atlasc/passes."""
    linked = (ROOT / "atlasc" / "ir", ROOT / "atlasc" / "passes")
    return [
        path
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(path.is_relative_to(link) for link in linked)
    ]


def module_name(folder: str, package: str, path: Path) -> str:
    """The import name of a file below a folder, which is imported as ``package``."""
    parts = path.relative_to(ROOT / folder).with_suffix("").parts
    return ".".join((*filter(None, (package,)), *parts)).removesuffix(".__init__")


def imported(name: str, path: Path, nodes: Iterator[ast.AST], modules: Container[str]) -> set[str]:
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
            # "from atlasc import ir" imports the module atlasc.ir.
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else base for name in names}
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
