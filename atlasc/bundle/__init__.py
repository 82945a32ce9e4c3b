"""What compile leaves behind, and what travels between client and server."""
