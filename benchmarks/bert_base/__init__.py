"""BERT-base's true shape on ciphertexts, measured beside the predictions; it can be interrupted."""
