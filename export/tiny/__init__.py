"""The embedded reference model: synthetic pages, training, evaluation."""
