"""Run a command, and write its seconds, its greatest memory and its exit code as JSON.

    python measure.py FILE COMMAND ...

It is a small process of its own because Linux counts the memory of whoever starts a command as the
command's: a parent that holds torch would hide what a small step takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

if __name__ == "__main__":
    started = time.perf_counter()
    process = subprocess.Popen(sys.argv[2:])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    memory = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"seconds": seconds, "memory": memory, "code": code}, file)
