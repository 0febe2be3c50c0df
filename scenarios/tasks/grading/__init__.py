"""Verifiers of one answer: text, numbers, expressions, judgement by a language model.

Belongs here: strict, bounded comparison of texts.
Not here: running programs (sandbox).
"""
