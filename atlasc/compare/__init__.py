"""Two targets side by side, op by op."""
