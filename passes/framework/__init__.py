"""What passes are made of: the base class, rewriting, arrays and equations."""
