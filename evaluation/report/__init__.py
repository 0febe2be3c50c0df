"""Report of a run: one HTML page, its charts and tables.

Belongs here: pages about whole runs.
Not here: statistics (stats), scores (scoring).
"""
