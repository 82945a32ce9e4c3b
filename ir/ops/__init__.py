"""The ops of each IR level, declared once: nn, poly and ckks."""
