"""What becomes of tiny random models of every Transformer family."""
