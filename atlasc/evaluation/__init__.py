"""How good a program is on labelled inputs: its accuracy, and its agreement with the model."""
