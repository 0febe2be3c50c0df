"""What training was worth: sealed evaluation, statistics, baselines and the report."""
