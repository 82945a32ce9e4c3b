"""Running a compiled program: all roles in one process, or each for itself."""
