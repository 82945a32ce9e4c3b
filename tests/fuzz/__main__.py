"""``python -m tests.fuzz``; see run.py."""

import os
import sys
from pathlib import Path

# Before any library that reads them is imported: one thread a process, so that a fork is safe.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from tests.fuzz.run import main

if __name__ == "__main__":
    sys.exit(main())
