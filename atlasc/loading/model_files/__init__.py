"""Files of a model: configs, weights, adapters and archives, read without running their code."""
