"""Policies of the scripted engine that say nothing, or what a policy under pressure may write."""

import random

from scenarios.hostile import HOSTILE_TEXTS, SEAT_TEXTS


def silent(transcript: str) -> str:
    """Write an empty answer."""
    return ""


def hostile(transcript: str, rng: random.Random) -> str:
    """Write one of the hostile texts: garbage, huge, special tokens, NaN, duplicate keys, bad calls."""
    return rng.choice((*HOSTILE_TEXTS, *SEAT_TEXTS))
