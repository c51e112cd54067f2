"""When requests arrive: closed loops, random processes and the traces of production systems; pure and seeded."""
