"""The quality of a program on labelled inputs: accuracy, and agreement with the model."""
