"""Specs that several tests write into their folders."""

CONTEXTS = """
[[model]]
kind = "day-chain"
states = ["home", "work", "clinic"]
initial = [0.8, 0.2, 0]
transition = [[0.7, 0.25, 0.05], [0.1, 0.88, 0.02], [0.3, 0.2, 0.5]]
slots = {slots}
[secrets]
kind = "contexts"
sensitive = ["clinic"]
[query]
kind = "current"
[privacy]
belief_delta = 0.1
mechanism = "mask-adaptive"
"""

PLACES = """
[[model]]
kind = "grid-walk"
south = 52.50
west = 13.36
cell_km = 0.5
rows = {side}
columns = {side}
stay = 0.6
[secrets]
kind = "policy-graph"
graph = "radius"
radius_km = 0.5
[query]
kind = "measurement"
[privacy]
epsilon = 1.0
"""

HOUSEHOLD = """
[[model]]
kind = "bayes-net"
[model.nodes]
season = { values = ["warm", "cold"], table = [0.6, 0.4] }
anna = { values = ["well", "ill"], parents = ["season"], table = [[0.95, 0.05], [0.8, 0.2]] }
ben = { values = ["well", "ill"], parents = ["anna"], table = [[0.9, 0.1], [0.4, 0.6]] }
[secrets]
kind = "each-entry"
"""
