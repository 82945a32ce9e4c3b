"""``python -m atlasc``: the same as the command ``atlasc``."""

import os
import signal


def main() -> None:
    """Entry point of the console script; exits 0, 2 on a user's mistake, 130 when interrupted."""
    # Until a command begins and installs its own handler, an interrupt has nothing to clean up, and
    # a KeyboardInterrupt would only show where Python was importing.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from atlasc.cli import main as run

    run()


if __name__ == "__main__":
    main()
