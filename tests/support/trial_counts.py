"""Numbers of trials of a test: few by default, those of the reliability table with `--counts full`."""

tier = "pr"


def num_trials(pr: int, full: int) -> int:
    """Return the number of trials that this session runs."""
    return full if tier == "full" else pr
