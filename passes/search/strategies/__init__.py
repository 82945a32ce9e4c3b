"""Search strategies; all have one interface."""
