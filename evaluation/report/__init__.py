"""Pages about whole runs: the HTML report and the Markdown page of results.

Not here: the tables themselves (evaluation.summary), minutes of single episodes (evaluation.minutes).
"""
