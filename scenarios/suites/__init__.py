"""Joint games of others that a team plays: hidden profiles from a file, negotiation with secret points.

Each is a game of `simulator.game`: the seats report, ReconcileGPT drafts, the seats vote. Not trained on.
"""
