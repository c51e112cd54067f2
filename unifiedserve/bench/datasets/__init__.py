"""Data sets of questions about videos and images, read from where their authors' archives unpack to."""
