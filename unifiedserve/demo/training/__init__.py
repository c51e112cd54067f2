"""How the bundled model is trained: on scenes drawn and questions asked as it goes."""
