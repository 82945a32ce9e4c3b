"""The arrangement of tensors in the slots of ciphertexts."""
