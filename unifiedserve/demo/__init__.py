"""What a first look needs: a question asked from the shell, and the bundled model with the world it was made for."""
