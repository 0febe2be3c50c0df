"""Uploads an exported team to a model repository of a hub, with the user's own token of that hub."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from roles.errors import UserError
from training.export.team_folder import HUB_FILES, TeamFolder

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")


def check_repository(repository: str | None, hub: str | None) -> None:
    """Refuse a name or an address before anything is written.

    Raises:
        UserError: no ORG/NAME, or no http address.
    """
    if repository is None:
        raise UserError("--hub and --public go with --push ORG/NAME")
    if not _REPOSITORY.fullmatch(repository):
        raise UserError(f"--push {repository!r} is not of the form ORG/NAME")
    if hub is not None and not hub.startswith(("https://", "http://127.0.0.1", "http://localhost")):
        raise UserError(f"--hub {hub!r}: give an https address")


def push_folder(
    folder: TeamFolder, repository: str, *, hub: str | None = None, is_public: bool = False
) -> str:
    """Upload the folder as one commit and return its address; a new repository is private unless told.

    Raises:
        UserError: the hub refuses, or is not reached; the folder stays as it is.
    """
    api = HfApi(endpoint=hub)
    with _explain(repository):
        api.create_repo(repository, repo_type="model", private=not is_public, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder.path,
            commit_message=f"{folder.record.name} after {folder.record.stage}",
            ignore_patterns=sorted(HUB_FILES),
        )
    return str(commit.commit_url)


@contextmanager
def _explain(repository: str) -> Iterator[None]:
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no"
        known = {401: "log in with `hf auth login`", 403: "your token may not write there"}
        reason = (
            known.get(status, str(error).splitlines()[0][:200]) if isinstance(status, int) else "no answer"
        )
        raise UserError(f"--push {repository}: the hub answers {status}: {reason}") from None
    except (httpx.TransportError, ConnectionError, HFValidationError, ValueError) as error:
        raise UserError(f"--push {repository}: {str(error).splitlines()[0][:200]}") from None
