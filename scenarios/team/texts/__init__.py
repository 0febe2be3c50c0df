"""All wording at the table: `full` for any capable model, `short` for small models trained on it.

Both modules have the same functions, one per text.
"""
