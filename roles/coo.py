"""The COO: who does which work package, and when all of it is done."""

from roles.base import Answer, Role, Tool


class CooAnswer(Answer):
    """Example: CooAnswer(assign={"P1": "A", "P2": "B", "P3": "A"}, finish=54)"""

    assign: dict[str, str]  # package -> person, in the order in which the packages run
    finish: int  # hours until the last package is done


ROLE = Role(
    name="coo",
    title="COO",
    mandate=(
        "You are the COO. Assign every work package to one qualified person so that all work finishes as "
        "early as possible, and by the deadline. The brief lists, per package, the hours that each qualified "
        "person needs and the packages it comes after. Packages run in the order in which you list them; "
        "each starts when its predecessors are done and its person is free. Check plans with the tool, then "
        'answer with one JSON object: {"assign": {"P1": "...", "P2": "...", ...}, "finish": ...}.'
    ),
    answer=CooAnswer,
    tools=(
        Tool(
            name="check_assignment",
            description="Finish time of a complete plan, and whether it is on time.",
            parameters={
                "type": "object",
                "properties": {
                    "assign": {
                        "type": "object",
                        "description": "package -> person, in running order",
                        "additionalProperties": {"type": "string"},
                    }
                },
                "required": ["assign"],
                "additionalProperties": False,
            },
        ),
    ),
    letter="O",
)
