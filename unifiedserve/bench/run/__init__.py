"""Run requests: sent by a schedule or by users, watched, timed and put on record."""
