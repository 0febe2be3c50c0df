"""Pages about whole runs: the HTML report and the Markdown page of results."""
