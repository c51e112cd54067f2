"""Quantise matrices: from checkpoints that hold some, or made of plain ones, in one form."""
