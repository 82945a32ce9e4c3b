"""Files that may come from somebody else, read with limits."""
