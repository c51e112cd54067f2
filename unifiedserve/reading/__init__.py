"""Read strangers' media in processes of their own: confined, bounded in time and memory, and ended when not needed."""
