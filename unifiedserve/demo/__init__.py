"""What a first look needs: a demonstration, and the bundled model with the world that it is made for."""
