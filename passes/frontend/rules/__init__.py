"""What torch's ops, and groups of them, mean as nn ops."""
