"""What a model's folder says of the texts that it writes."""
