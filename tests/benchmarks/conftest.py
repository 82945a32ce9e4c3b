"""Makes the small Transformers of the lowering's tests importable here too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "passes" / "lowering"))
