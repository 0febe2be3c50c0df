"""Team cases as a PettingZoo ParallelEnv: every role is an agent, observations and actions are texts.

An episode has three steps: the specialists report, ReconcileGPT decides, the specialists vote. Whoever has
nothing to say observes "" and its action is not read. A first observation holds the whole system text and
all facts of the seat: there are no tools and no questions here. All agents get the team reward, at the end;
its parts and the verdict are in `infos` then, and no truth before. pip install 'emads[pettingzoo]'.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from gymnasium.spaces import Text
from pettingzoo import ParallelEnv

from roles.errors import UserError
from roles.team import RECONCILER
from scenarios.base import SEALED, Split, Style
from scenarios.team import PlanGame, TeamScenario, generate
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, score_episode

MAX_CHARS = 20_000
CHARACTERS = "".join(map(chr, range(32, 127))) + "\n"
PHASES = ("report", "decide", "vote")


class TeamEnv(ParallelEnv[str, str, str]):  # type: ignore[misc]
    """One team; each reset draws the next case of the split, or the one in its options.

    Example: env = TeamEnv("train"); observations, _ = env.reset(options={"index": 7})
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "emads_team_v1", "render_modes": []}

    def __init__(
        self,
        split: Split = "train",
        *,
        seed: int = 0,
        difficulty: int = 1,
        weights: TeamRewardWeights | None = None,
        style: Style = "full",
    ) -> None:
        """`seed` is the stream of cases, `style` that of the texts.

        Raises:
            ValueError: coordinates out of range.
            UserError: the test split, which is sealed.
        """
        if split in SEALED:
            raise UserError(
                f"the {split} split is sealed: play train or validation, and let `emads` evaluate"
            )
        self._split, self._seed, self._difficulty = split, seed, difficulty
        self._weights = weights or TeamRewardWeights()
        self._index, self._style = -1, style
        self._case = self._draw(0)
        self.possible_agents = [*self._case.seats, RECONCILER]
        self.agents: list[str] = []
        self._observations, self._actions = (
            {agent: Text(MAX_CHARS, min_length=0, charset=CHARACTERS) for agent in self.possible_agents}
            for _ in range(2)
        )
        self._said: dict[str, Mapping[str, str]] = {}
        self.render_mode = None

    def observation_space(self, agent: str) -> Text:
        """Texts of up to 20,000 printable characters; "" where the agent has nothing to do."""
        return self._observations[agent]

    def action_space(self, agent: str) -> Text:
        """Texts of up to 20,000 printable characters."""
        return self._actions[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Open a case: the next one, or that of `options["index"]`. `seed` chooses the stream of cases."""
        if seed is not None:
            self._seed, self._index = seed, -1
        wanted = (options or {}).get("index")
        self._index = self._index + 1 if wanted is None else int(wanted)
        self._case = self._draw(self._index)
        self.agents, self._said = list(self.possible_agents), {}
        return self._observe(), self._inform()

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Let the agents of this phase speak; an agent without an action says nothing.

        Raises:
            ValueError: the episode is over.
        """
        if not self.agents:
            raise ValueError("the episode is over; call reset")
        present, phase = list(self.agents), self.phase
        speakers = [RECONCILER] if phase == "decide" else list(self._case.seats)
        self._said[phase] = {agent: str(actions.get(agent, "")) for agent in speakers}
        is_done = phase == PHASES[-1]
        infos = self._inform()
        reward = 0.0
        if is_done:
            episode = Episode(
                scenario_key=self._case.key,
                index_in_group=0,
                trajectories={},
                reports=self._said["report"],
                decision=self._said["decide"][RECONCILER],
                votes=self._said["vote"],
            )
            verdict = score_episode(self._case, episode, self._weights)
            reward, self.agents = verdict.reward, []
            parts = asdict(verdict)
            del parts["reward"]
            for agent in present:
                infos[agent] |= parts
        return (
            dict.fromkeys(present, "") if is_done else self._observe(),
            dict.fromkeys(present, reward),
            dict.fromkeys(present, is_done),
            dict.fromkeys(present, False),
            infos,
        )

    @property
    def phase(self) -> str:
        """The phase that is played next: report, decide or vote."""
        return PHASES[min(len(self._said), len(PHASES) - 1)]

    def render(self) -> None:
        """Do nothing: there is no picture."""

    def _draw(self, index: int) -> TeamScenario:
        return generate(self._split, self._seed, index, self._difficulty)

    def _observe(self) -> dict[str, str]:
        observations = dict.fromkeys(self.possible_agents, "")
        game = PlanGame(self._case, self._style).without_questions()
        seats = list(self._case.seats)
        if self.phase == "report":
            return observations | {
                seat: to_printable(
                    f"{_introduce(game, seat)}{game.write_report_brief(seat, with_tools=False)}"
                )
                for seat in seats
            }
        said = self._said["report"]
        reports = {seat: game.read_report(seat, text) for seat, text in said.items()}
        if self.phase == "decide":
            brief = game.write_decision_brief(reports)
            return observations | {RECONCILER: to_printable(f"{_introduce(game, RECONCILER)}{brief}")}
        decision = game.read_decision(reports, self._said["decide"][RECONCILER])
        return observations | {
            seat: to_printable(game.write_vote_brief(decision, seat, reports)) for seat in seats
        }

    def _inform(self) -> dict[str, dict[str, Any]]:
        return {agent: {"case": self._case.key} for agent in self.possible_agents}


def _introduce(game: PlanGame, seat: str) -> str:
    return f"{game.prompt_role(seat, with_tools=False).mandate}\n\n"


def to_printable(text: str) -> str:
    """Return the text with "?" for characters that are not in the space; agents' notes may hold any."""
    return "".join(character if character in CHARACTERS else "?" for character in text)[:MAX_CHARS]
