"""The files that compile writes, and the messages between client and server."""
