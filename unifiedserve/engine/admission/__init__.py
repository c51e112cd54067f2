"""Turn a client's request into one that the engine can surely serve, or refuse clearly."""
