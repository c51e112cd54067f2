"""Read data sets of questions about videos and images from their authors' unpacked archives."""
