"""Track requests between their arrival and their end: one record each, in one table."""
