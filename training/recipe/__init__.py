"""The recipe: lessons, network, losses and the loop."""
