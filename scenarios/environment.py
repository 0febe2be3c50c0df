"""A family as a pure environment: `reset` gives a state, `step` takes a state and an action to the next one.

For trainers of others: no class, no engine, no chat; how a model's text becomes an action is theirs. A tool
call that is refused is an observation, an answer ends the episode, and so does the last allowed step.
"""

from dataclasses import dataclass, replace

from scenarios.base import Family, Scenario, Split, ToolCall, ToolError, Verdict, rejected
from scenarios.rewards import role_reward

MAX_STEPS = 16
Action = ToolCall | str  # a call of a tool, or the text of the final answer


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of an episode. Never shown to a player: the scenario holds the truth.

    Example: reset(FAMILIES["cto"], "train", 0, 7, 2).scenario.brief
    """

    scenario: Scenario
    max_steps: int
    num_steps: int = 0  # actions taken
    num_calls: int = 0
    num_valid_calls: int = 0
    verdict: Verdict | None = None  # None while the episode goes on

    @property
    def is_done(self) -> bool:
        return self.verdict is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Result of an action.

    Example: step(family, state, '{"option": "B", "cost": 62}').reward
    """

    state: State
    observation: str  # what the tool says; "" after the answer
    reward: float  # 0 before the end
    parts: dict[str, float]  # every component of the reward and their "total"; empty before the end


def reset(
    family: Family, split: Split, seed: int, index: int, difficulty: int, *, max_steps: int = MAX_STEPS
) -> State:
    """The state before the first action; what a player reads is `state.scenario.brief`.

    Raises:
        ValueError: coordinates out of range, max_steps < 1.
    """
    return start(family.generate(split, seed, index, difficulty), max_steps=max_steps)


def start(scenario: Scenario, *, max_steps: int = MAX_STEPS) -> State:
    """The state before the first action on this scenario.

    Raises:
        ValueError: max_steps < 1.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    return State(scenario=scenario, max_steps=max_steps)


def step(family: Family, state: State, action: Action) -> Transition:
    """The next state; total over whatever a model may do.

    Raises:
        ValueError: the episode is over.
    """
    if state.is_done:
        raise ValueError(f"the episode on {state.scenario.key} is over; call reset")
    after = replace(state, num_steps=state.num_steps + 1)
    if isinstance(action, str):
        return _end(after, family.verify(state.scenario, action))
    after = replace(after, num_calls=state.num_calls + 1)
    try:
        if after.num_calls > family.max_calls:
            raise ToolError(f"no calls left: at most {family.max_calls}; answer now")
        observation = family.call_tool(state.scenario, action)
        after = replace(after, num_valid_calls=state.num_valid_calls + 1)
    except ToolError as error:
        observation = f"error: {error}"
    if after.num_steps == after.max_steps:
        verdict = rejected("no_answer", f"no answer in {after.max_steps} steps")
        return replace(_end(after, verdict), observation=observation)
    return Transition(state=after, observation=observation, reward=0.0, parts={})


def _end(state: State, verdict: Verdict) -> Transition:
    parts = role_reward(
        verdict,
        num_steps=state.num_steps,
        optimal_steps=state.scenario.optimal_tool_calls + 1,
        max_steps=state.max_steps,
        num_calls=state.num_calls,
        num_valid_calls=state.num_valid_calls,
    )
    done = replace(state, verdict=verdict)
    return Transition(state=done, observation="", reward=parts["total"], parts=parts)
