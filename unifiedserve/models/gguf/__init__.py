"""Read GGUF files as checkpoints: the folder that stands for one, and its tensors."""
