"""The simulator: cleartext slots that behave like ciphertexts."""
