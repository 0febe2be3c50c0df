"""Outside checks by name: questions and answers of another project, played as a folder of tasks is.

`reasoning-gym` (the package) generates its questions. Of its data sets those are taken whose answers it
compares as text: others evaluate what a model wrote, which nothing here does. Its full score alone is right.
"""

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from evaluation.scoring.external_tasks import FAMILY, TaskFolder
from roles.errors import UserError, unknown
from scenarios.base import Family, Scenario, Verdict
from scenarios.tasks.grading.text_checks import Score
from scenarios.tasks.imported import ROLE
from scenarios.tasks.solver import judge

REASONING_GYM = "reasoning-gym"
SUITES = (REASONING_GYM,)
SEED = 0
SIZE = 100  # questions of each data set; some draw others for another size
MAX_CHARS = 20_000


def read_suite(name: str, count: int) -> tuple[TaskFolder, Family]:
    """Return the first `count` questions of a suite, dealt evenly over its data sets, and their verifier.

    Raises:
        UserError: unknown suite, its package is not installed, or it has fewer questions.
    """
    if name not in SUITES:
        raise unknown("--suite", name, list(SUITES))
    if find_spec("reasoning_gym") is None:
        raise UserError("--suite reasoning-gym needs its package; pip install reasoning-gym")
    names = _list_data_sets()
    if count > SIZE * len(names):
        raise UserError(f"--count {count}: {name} has {SIZE * len(names)} questions here")
    scenarios, rejected = [], []
    for index in range(count):
        item, place = divmod(index, len(names))
        try:
            question = str(_open(names[place])[item]["question"])
        except RuntimeError as error:  # a generator that gives up
            rejected.append(f"{names[place]} {item}: {error}")
            continue
        scenarios.append(
            Scenario(
                family=name,
                split="test",
                seed=SEED,
                index=index,
                difficulty=1,
                role=ROLE.name,
                brief=question,
                facts={"source": names[place]},
                truth={"item": item},
                optimal_tool_calls=0,
            )
        )
    folder = TaskFolder(scenarios=tuple(scenarios), rejected=tuple(rejected), num_with_files=0)
    return folder, replace(FAMILY, name=name, verify=verify)


def verify(scenario: Scenario, text: str) -> Verdict:
    """The verdict on a final text: one JSON object with an answer, which the data set itself compares."""
    data, item = _open(scenario.facts["source"]), scenario.truth["item"]

    def score(answer: str) -> Score:
        if len(answer) <= MAX_CHARS and data.score_answer(answer, data[item]) == 1:
            return Score(value=1.0, explanation="right", failure=None)
        return Score(value=0.0, explanation=f"not {answer[:40]!r}", failure="wrong")

    return judge(text, score)


@cache
def _list_data_sets() -> tuple[str, ...]:
    from reasoning_gym.dataset import ProceduralDataset
    from reasoning_gym.factory import DATASETS

    compares_text = ProceduralDataset.score_answer
    return tuple(name for name, (kind, _) in sorted(DATASETS.items()) if kind.score_answer is compares_text)


@cache
def _open(name: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=SIZE, seed=SEED)
