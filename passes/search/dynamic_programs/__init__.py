"""From a model of errors and of costs to the front that it predicts."""
