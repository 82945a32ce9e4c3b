"""Why a part has no figures."""

from __future__ import annotations


class Skipped(Exception):
    """A part cannot run here; the message says why."""


class Failed(Exception):
    """A part went wrong, or its result is wrong; the message says how."""
