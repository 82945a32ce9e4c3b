"""How tensors lie in the slots of ciphertexts."""
