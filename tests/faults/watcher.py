"""Another user of the machine, who tries to read keys while they are made."""

from __future__ import annotations

import os
import signal
import stat
from contextlib import suppress
from pathlib import Path

NOBODY = 65534


class Watcher:
    """Looks again and again at all that lies in a folder, as long as the block runs.

    As root, it does so in a process of the user nobody, and what it can open or list is a fault.
    Other users cannot become somebody else: their watcher looks at the modes.

    Attributes:
        seen: after the block, what it could read; empty where all is well.
        looks: after the block, how often it looked.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.looks = folder, [], 0
        self._other = os.geteuid() == 0

    def __enter__(self) -> Watcher:
        if self._other:  # every folder on the way there lets others through
            for place in (self.folder, *self.folder.parents):
                if not place.stat().st_mode & stat.S_IXOTH:
                    place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o055)
        receiver, sender = os.pipe()
        self._pipe, self._child = receiver, os.fork()
        if self._child == 0:
            os.close(receiver)
            try:
                self._look(sender)
            finally:
                os._exit(0)
        os.close(sender)
        return self

    def __exit__(self, *error: object) -> None:
        os.kill(self._child, signal.SIGTERM)
        with os.fdopen(self._pipe) as pipe:
            *self.seen, looks = sorted(set(pipe.read().splitlines()), key=str.isdigit)
        os.waitpid(self._child, 0)
        self.looks = int(looks)

    def _look(self, sender: int) -> None:
        if self._other:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        stop: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
        looks, told = 0, set()
        while not stop:
            looks += 1
            with suppress(OSError):
                for name in os.listdir(self.folder):
                    told |= set(self._readable(self.folder / name))
        os.write(sender, "\n".join([*sorted(told), str(looks)]).encode())

    def _readable(self, path: Path) -> list[str]:
        """What of a file or a folder others may read."""
        with suppress(OSError):
            status = path.lstat()
            folder = stat.S_ISDIR(status.st_mode)
            if not self._other:
                if not status.st_mode & 0o077:
                    return []
            elif not folder:
                os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
            inner = os.listdir(path) if folder else []
            found = [f"{'listed' if folder else 'read'} {path.name} ({status.st_mode & 0o777:o})"]
            return [*found, *(text for name in inner for text in self._readable(path / name))]
        return []
