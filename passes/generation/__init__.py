"""The programs of a decoder that generates text: the step of a token, and the prefill before it."""
