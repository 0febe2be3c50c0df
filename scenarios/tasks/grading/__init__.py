"""General verifiers of one answer: text, numbers, expressions, a language model's judgement.

Belongs here: strict, bounded comparison of texts.
Not here: running programs (sandbox).
"""
