"""From options of the command line to an endpoint and the rules of teaching. Mistakes name key and remedy."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from roles.errors import UserError
from scenarios.written.strict_yaml import read_settings
from simulator.engines.openai.endpoint import EndpointSettings, find_completions_url, read_api_key
from training.data.teacher.teacher import TeachingRules

NOT_SET_BY_KEY = ("url", "model", "api_key")  # options name the first two; a key is never an argument


def resolve_teacher(
    url: str, model: str | None, overrides: Sequence[str] = ()
) -> tuple[EndpointSettings, TeachingRules]:
    """Return settings from address, model and overrides key=value; `api_key_env` names a variable.

    Raises:
        UserError: no model, unknown key, value out of range, limit without prices, no API key there.
    """
    values: dict[str, Any] = {"url": url, "model": model}
    if model is None:
        raise UserError("--teacher needs --model, the name under which the endpoint serves the model")
    find_completions_url(url)
    fields = [*EndpointSettings.model_fields, *TeachingRules.model_fields]
    known = [*(name for name in fields if name not in NOT_SET_BY_KEY), "api_key_env"]
    values |= read_settings(overrides, known, option="--teacher-set", what="teacher setting")
    variable = values.pop("api_key_env", None)
    if variable is not None:
        values["api_key"] = read_api_key(variable)
    rules = {key: values.pop(key) for key in TeachingRules.model_fields if key in values}
    try:
        endpoint, checked_rules = EndpointSettings(**values), TeachingRules(**rules)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{first['loc'][0]} {first['input']!r}: " if first["loc"] else ""
        raise UserError(where + first["msg"].removeprefix("Value error, ").lower()) from None
    return endpoint, checked_rules
