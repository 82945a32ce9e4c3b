"""The files that compile writes, and the messages between client and server."""

PROGRAM_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Names of programs: each is a segment of an address, and a label of a figure, as it stands."""
