"""The nodes that only the governed graph has; those of reports, decision and votes are in `simulator.graph`.

Belongs here: state and services in, update of the state out.
Not here: routes (governed_graph), what is signed (gate), what is stored (store).
"""
