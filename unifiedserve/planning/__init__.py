"""Choose where stages run. Candidates are simulated with the schedulers that serve, over the costs in a profile."""
