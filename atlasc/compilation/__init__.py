"""From a model and data to a bundle, stage by stage."""
