"""The numbers of one run: its plays, summary, gates and tables.

Not here: pages (evaluation.report), the plays themselves (evaluation.scoring).
"""
