"""Turn logits into tokens, by the grammars that answers follow."""
