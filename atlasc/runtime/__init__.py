"""What runs: engines of the runtime library, in this process."""
