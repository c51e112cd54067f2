"""From logits to tokens, and the grammars that answers follow."""
