"""Company structures and their exact analyses.

Belongs here: architecture, work plan, threat graph, price list, bargaining.
Not here: questions asked about them (the families).
"""
