"""Makes the helpers of this folder importable; keeps fits out of the user's own cache."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from small_models import session_cache

__all__ = ["session_cache"]
