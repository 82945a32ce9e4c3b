"""Search for settings: which exponents buy the most accuracy for their cost."""
