"""Data folders: Parquet shards of demonstrations with an index and a data card.

Belongs here: rows, columns, shards, their validation and description.
Not here: token rows to train on (training.data.demonstrations).
"""
