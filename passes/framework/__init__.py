"""The parts that passes are made of: base class, rewriting, arrays and equations."""
