"""What is shown of runs: in the terminal, as files, and side by side."""
