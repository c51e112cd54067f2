"""Control access: who may use the server, from where, and how much at once."""
