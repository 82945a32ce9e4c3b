"""Helpers of the approximation tests, and their cache of fits."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "approximation"))

from small_models import session_cache

__all__ = ["session_cache"]
