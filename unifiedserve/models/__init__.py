"""Model families: one thin adapter each over `transformers`."""
