"""``python -m atlasc``: the same as the command ``atlasc``."""

from atlasc.cli import main

if __name__ == "__main__":
    main()
