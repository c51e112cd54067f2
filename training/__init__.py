"""The bundled model: the world it knows, how it is trained, and what it is asked."""
