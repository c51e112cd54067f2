"""Record turns: what they were told and what they decided, to be decided again."""
