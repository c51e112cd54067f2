"""Search the highest rate at which a server still keeps its targets."""
