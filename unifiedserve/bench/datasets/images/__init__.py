"""Read data sets of questions about images, one file each."""
