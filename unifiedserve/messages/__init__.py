"""Define what travels: the API's types and the wire's, plain structs without torch."""
