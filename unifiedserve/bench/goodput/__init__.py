"""The highest rate at which a server still keeps its targets, found by search."""
