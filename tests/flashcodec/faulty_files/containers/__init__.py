"""Containers, each as a pair of functions: its file into packets, and packets into a file that says what they say."""
