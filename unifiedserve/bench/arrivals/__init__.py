"""Time the arrival of requests: closed loops, random processes and production traces; pure and seeded."""
