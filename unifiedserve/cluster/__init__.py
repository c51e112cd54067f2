"""Run many engines as one: pools of nodes on Ray, and routers in front of them."""
