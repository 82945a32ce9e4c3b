"""Pages and pictures of a compiled program."""
