"""Twenty plain instructions that any chat model knows, each with a check of the reply; none is trained on."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A plain instruction and the check of a reply to it.

    Example: Instruction(text="What is 2 + 3?", is_right=says("5"), example="2 + 3 = 5.")
    """

    text: str
    is_right: Callable[[str], bool]
    example: str  # a right reply


def says(*words: str) -> Callable[[str], bool]:
    """Check that all of these words or numbers are in the reply, whatever their case."""
    return lambda reply: all(re.search(rf"\b{re.escape(word)}\b", reply, re.IGNORECASE) for word in words)


def matches(pattern: str) -> Callable[[str], bool]:
    """Check that the whole reply, without spaces around it, has this form."""
    return lambda reply: re.fullmatch(pattern, reply.strip(), re.DOTALL) is not None


INSTRUCTIONS = (
    Instruction(text="What is the capital of France?", is_right=says("Paris"), example="It is Paris."),
    Instruction(text="What is 2 + 3?", is_right=says("5"), example="2 + 3 = 5"),
    Instruction(
        text="How many days are in a week?",
        is_right=matches(r".*\b(7|seven)\b.*"),
        example="Seven days: 7, or seven.",
    ),
    Instruction(
        text="What colour do you get when you mix blue and yellow paint?",
        is_right=says("green"),
        example="Green.",
    ),
    Instruction(text="Which planet is known as the Red Planet?", is_right=says("Mars"), example="Mars is."),
    Instruction(
        text="Name the largest ocean on Earth.", is_right=says("Pacific"), example="The Pacific Ocean."
    ),
    Instruction(text="What is the opposite of hot?", is_right=says("cold"), example="Cold."),
    Instruction(
        text="What gas do plants take in from the air?",
        is_right=matches(r"(?i).*\b(carbon dioxide|CO2)\b.*"),
        example="Carbon dioxide.",
    ),
    Instruction(
        text="Who wrote Romeo and Juliet?", is_right=says("Shakespeare"), example="William Shakespeare."
    ),
    Instruction(
        text="What is the chemical symbol of water?", is_right=matches(r".*(H2O|H₂O).*"), example="H2O"
    ),
    Instruction(
        text="Translate the English word 'cat' into Spanish.", is_right=says("gato"), example="'Gato'."
    ),
    Instruction(text="What is the plural of 'mouse'?", is_right=says("mice"), example="Mice."),
    Instruction(
        text="Write the word 'hello' in capital letters.",
        is_right=lambda reply: "HELLO" in reply,
        example="HELLO",
    ),
    Instruction(
        text="Count from 1 to 5, with commas between the numbers.",
        is_right=matches(r".*1, ?2, ?3, ?4,( and)? ?5.*"),
        example="1, 2, 3, 4, 5",
    ),
    Instruction(
        text="List three fruits, one per line.",
        is_right=matches(r"(?:[^\n]*\n)*(?:[^\w\n]*\d*[.)]?\s*\w[^\n]*\n){2}[^\w\n]*\d*[.)]?\s*\w[^\n]*"),
        example="- apple\n- pear\n- plum",
    ),
    Instruction(
        text="Write one sentence about the sea that ends with an exclamation mark.",
        is_right=matches(r"[^\n]*\b(sea|ocean|waves?)\b[^\n]*!"),
        example="The sea is wide!",
    ),
    Instruction(
        text="Complete the sentence: The sun rises in the ...", is_right=says("east"), example="east"
    ),
    Instruction(
        text="Is the number 8 odd or even?",
        is_right=lambda reply: says("even")(reply) and not says("odd")(reply),
        example="It is even.",
    ),
    Instruction(
        text="Say 'Good morning' and nothing else.",
        is_right=matches(r"(?i)['\"]?good morning['\"]?[.!]?"),
        example="Good morning!",
    ),
    Instruction(
        text="Summarise in at most ten words: Bees visit flowers, collect nectar and make honey from it.",
        is_right=lambda reply: 0 < len(reply.split()) <= 10 and says("bees")(reply),
        example="Bees make honey from nectar.",
    ),
)
