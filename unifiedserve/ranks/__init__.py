"""Spread one language model over processes, its ranks: tensor parallelism as in Megatron-LM (arXiv 1909.08053, §3).

Each rank has some of the heads, of the MLPs' inner columns and of the vocabulary (`parts.py`). Rank 0 is the worker: it
decides what is done, and tells the others (`leader.py`), which do the same on their parts (`follower.py`).
"""
