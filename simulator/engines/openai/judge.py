"""An LLM judge behind any OpenAI-compatible endpoint: one prompt, one text, at temperature 0."""

from typing import Self

from roles.errors import InfrastructureError
from simulator.engines.loop_thread import LoopThread
from simulator.engines.openai.client import ChatClient
from simulator.engines.openai.endpoint import BudgetSpentError, EndpointSettings


class EndpointJudge:
    """A `scenarios.tasks.grading.judge.Judge`; use it as a context manager. Equal prompts are asked once.

    Example: with EndpointJudge(settings) as judge: score_by_judge(judge, criteria, question, answer)
    """

    def __init__(self, settings: EndpointSettings) -> None:
        """Whatever temperature the settings name, it is asked at 0.

        Raises:
            UserError: not a URL.
        """
        self._client = ChatClient(settings.model_copy(update={"temperature": 0.0}))
        self._thread = LoopThread("judge")
        self._replies: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.call(self._client.close())
        self._thread.close()

    @property
    def cost(self) -> float:
        """Return what was spent so far, in the currency of the prices."""
        return self._client.budget.spent

    def reply(self, prompt: str) -> str:
        """Return the judge's words.

        Raises:
            InfrastructureError: no reply, or none within the cost limit.
            UserError: key, balance, permission, address or model are refused.
        """
        if prompt not in self._replies:
            messages = [{"role": "user", "content": prompt}]
            try:
                reply = self._thread.call(self._client.complete(messages))
            except BudgetSpentError as error:
                raise InfrastructureError(f"the judge's {error}") from None
            self._replies[prompt] = reply.text
        return self._replies[prompt]
