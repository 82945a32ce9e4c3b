"""Predicted seconds of a model under any approximations, without lowering it for each."""
