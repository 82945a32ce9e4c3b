"""The step of a decoder that generates text token by token."""
