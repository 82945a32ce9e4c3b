"""The one error type that users see: what went wrong, where, why, and what to do."""

from __future__ import annotations


class AtlasError(Exception):
    """A user's mistake or an impossible request; the command line prints it and exits with 2.

    Args:
        what: one sentence that names the fault, with the op where there is one.
        where: module path, file and line, or line and column of an IR text.
        why: the reason, with the figures that decided it.
        remedy: what the user can do.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", remedy: str = "") -> None:
        self.what, self.where, self.why, self.remedy = what, where, why, remedy
        super().__init__(self.render())

    def render(self) -> str:
        """The message as plain text, one aspect a line."""
        parts = [self.what]
        parts += [f"  {label}: {text}" for label, text in self._aspects() if text]
        return "\n".join(parts)

    def _aspects(self) -> tuple[tuple[str, str], ...]:
        return (("where", self.where), ("why", self.why), ("what to do", self.remedy))
