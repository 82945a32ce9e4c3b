"""How many files of atlasc a role enters, as a process that plays it sees them.

A file is entered when a function of it is called. What runs while a module is imported does not
count, nor do nested functions without a name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROLES = {
    "execute": "open(answer, 'wb').write(atlasc.Server(program, keys).execute(Path(query)))",
    "decrypt": "atlasc.Client(program, keys).decrypt(Path(answer)).shown()",
}
"""What a role does, from the program's folder to its result."""
_TRACED = """
import json, os, sys, threading, warnings
from pathlib import Path
import atlasc
import atlasc.api.roles

root, entered = os.path.dirname(atlasc.__file__), set()
here = {root, *(os.path.realpath(os.path.join(root, one)) for one in os.listdir(root))}
known = {}

def ours(file):
    if file not in known:
        real = os.path.realpath(file)
        known[file] = any(real.startswith(one + os.sep) or real == one for one in here)
    return known[file]

def see(frame, event, argument):
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    if event != "call" or name.startswith("<") or file in entered or not ours(file):
        return
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_name == "<module>" and caller.f_code.co_filename != "<string>":
            return
        caller = caller.f_back
    entered.add(file)

program, keys, query, answer = sys.argv[1:]
warnings.simplefilter("ignore")
threading.setprofile(see)
sys.setprofile(see)
ROLE
sys.setprofile(None)
print(json.dumps(sorted(os.path.relpath(one, root) for one in entered)))
"""


def entered(role: str, program: Path, keys: Path, query: Path, answer: Path) -> list[str]:
    """The files that a role enters.

    Args:
        role: one of ``ROLES``.
        program: a bundle.
        keys: folder of the role's keys.
        query, answer: files; ``execute`` writes the answer.
    """
    code, given = _TRACED.replace("ROLE", ROLES[role]), (program, keys, query, answer)
    command = [sys.executable, "-c", code, *map(str, given)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found
