"""ReconcileGPT: weighs four reports that disagree and chooses, or hands the case to a human."""

from roles.base import Answer, Role, Tool


class ReconcileAnswer(Answer):
    """What ReconcileGPT answers.

    Example: ReconcileAnswer(option="B", contested=["A"], score=5, escalate=False)
    """

    option: str  # one option, or "none" where every option is vetoed
    contested: list[str]  # options that one stakeholder likes best and another one vetoes
    score: int  # risk 0 (everybody well served) to 12 (somebody is not served at all)
    escalate: bool  # true where every option is vetoed


WELFARE = Tool(
    name="welfare",
    description=(
        "Nash welfare of one option, its lowest utility, who likes it best and who vetoes it. In larger "
        "cases also, if nobody vetoes it: the lowest share (percent of one's best) and its places by "
        "Kalai-Smorodinsky and leximin."
    ),
    parameters={
        "type": "object",
        "properties": {"option": {"type": "string", "description": "one of the options in the brief"}},
        "required": ["option"],
        "additionalProperties": False,
    },
)

ROLE = Role(
    name="reconcile",
    title="ReconcileGPT",
    mandate=(
        "You are ReconcileGPT. The CTO, the COO, Risk and Cost have reported on the same options and "
        "disagree. Leave out every option that a stakeholder vetoes and choose the one with the largest "
        "Nash welfare among the rest. Name the contested options (one stakeholder's favourite, another's "
        "veto) and the risk score: (99 - lowest utility of the chosen option) // 8. If every option is "
        "vetoed, the option is none, the score 12 and escalate true. Look up every option, then answer with "
        'one JSON object: {"option": "...", "contested": [...], "score": ..., "escalate": ...}.'
    ),
    answer=ReconcileAnswer,
    tools=(WELFARE,),
    letter="M",
)
