"""Run every worker process: one loop, and the stages that an instance hosts."""
