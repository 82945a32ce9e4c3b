"""Real encryption with desilofhe."""
