"""Scenarios as a Gymnasium environment of texts: an action is what a model writes.

A tool call stands in `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as in the chat templates of
this project; any other text is the answer. Several learners at one table: `simulator.export.pettingzoo_env`.
"""

import json
from collections.abc import Mapping
from typing import Any

from gymnasium import Env
from gymnasium.spaces import Text

from serving.environments.plays import KINDS, Kind, Play, ScenarioName, start_play
from simulator.export.pettingzoo_env import CHARACTERS, MAX_CHARS, to_printable
from simulator.tool_calls import BadToolCallError, parse_tool_calls


class PlayEnv(Env[str, str]):
    """One kind of scenario; each reset draws the next one, or that of `options["index"]`.

    Example: env = PlayEnv("team_risk", difficulty=3); text, info = env.reset(seed=0, options={"index": 7})
    """

    def __init__(
        self, family: str, *, split: str = "train", difficulty: int = 1, kinds: Mapping[str, Kind] = KINDS
    ) -> None:
        self.observation_space = Text(MAX_CHARS, min_length=0, charset=CHARACTERS)
        self.action_space = Text(MAX_CHARS, min_length=0, charset=CHARACTERS)
        self._where = {"family": family, "split": split, "difficulty": difficulty}
        self._kinds, self._seed, self._index = kinds, 0, -1
        self._play: Play | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Open a scenario. `seed` chooses the stream of scenarios and begins it anew.

        Raises:
            UserError: the family does not have this scenario.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._seed, self._index = seed, -1
        wanted = (options or {}).get("index")
        self._index = self._index + 1 if wanted is None else int(wanted)
        place = {**self._where, "seed": self._seed, "index": self._index}
        self._play = play = start_play(ScenarioName.model_validate(place), self._kinds)
        tools = "".join(f"\n{json.dumps(tool.as_chat_tool())}" for tool in play.tools)
        system, user = (message["content"] for message in play.messages)
        text = f"{system}\n\nTools:{tools}\n\n{user}" if tools else f"{system}\n\n{user}"
        return to_printable(text), {"scenario": play.scenario.key}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Make the calls of the action, or take it as the answer; the reward comes at the end.

        Raises:
            RuntimeError: before a reset.
        """
        if self._play is None:
            raise RuntimeError("call reset first")
        play = self._play
        try:
            told = [play.call(call.name, call.arguments) for call in parse_tool_calls(action)]
        except BadToolCallError as error:
            play.call("", {})  # a refused call
            told = [f"error: {error}"]
        outcome = play.outcome if told else play.answer(action)
        info: dict[str, Any] = {"scenario": play.scenario.key}
        if outcome is not None:
            info |= outcome.as_fields()
        return to_printable("\n".join(told)), float(info.get("reward", 0.0)), play.is_done, False, info
