"""Starts the review app for a run or a store, and prints every reviewer's personal link."""

import asyncio
from pathlib import Path

from roles.errors import UserError
from serving.guard import Access
from serving.review.app import LIMITS, make_app
from serving.review.room import ReviewSettings, make_token
from serving.server import name_address, open_socket, run_server
from simulator.governance.runner import open_services
from simulator.governance.seals import NotApprovedError
from training.feedback.labels import QUEUE_FILE

RUN_STORE = Path("review/store.db")  # in a run's folder


def find_store(path: Path) -> tuple[Path, Path | None]:
    """Return the gate's store and the queue of a run's folder, or of a store's file.

    Raises:
        UserError: neither a run nor a store.
    """
    if path.is_dir():
        if not (path / "config.yaml").is_file():
            raise UserError(f"no run in {path} (no config.yaml there); name a run, or a store that --db made")
        store = path / RUN_STORE
        store.parent.mkdir(exist_ok=True)
        return store, path / QUEUE_FILE
    if not path.is_file():
        raise UserError(
            f"no store at {path}; make one: emads simulate --protocol full --reviewer web --db {path} ..."
        )
    return path, None


def remove_reviewer(store: Path, name: str) -> None:
    """Take a person's registration back; what they have approved and nobody has committed counts no more.

    Raises:
        UserError: nobody of this name is registered, or the store or its key cannot be used.
    """

    async def remove() -> None:
        async with open_services(store, key=ReviewSettings(store=store, reviewers=()).read_key()) as services:
            services.reviewers.remove(name)

    try:
        asyncio.run(remove())
    except NotApprovedError as error:
        raise UserError(f"--remove {name!r}: {error}") from None


def serve_review(settings: ReviewSettings, access: Access) -> None:
    """Serve until it is interrupted.

    Raises:
        UserError: a store, key, queue or log that cannot be used, or an address that cannot be bound.
    """
    key = settings.read_key()
    with open_socket(access) as listener:
        for name in settings.reviewers:
            link = f"{name_address(listener)}/sign-in#{make_token(key, name)}"
            print(f"link of {name}: {link}", flush=True)
        run_server(make_app(settings), access, name="review", limits=LIMITS, listener=listener)
