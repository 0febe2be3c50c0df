"""The verb by which people review in the browser."""

import getpass
from pathlib import Path
from typing import Annotated

import typer

from emads.cli.choices import check_at_least
from roles.errors import UserError

PORT = 8800


def review(
    where: Annotated[
        Path, typer.Argument(metavar="RUN|STORE", help="Run folder, or the SQLite file that --db names.")
    ],
    reviewer: Annotated[
        list[str] | None,
        typer.Option(
            "--reviewer", help="Who may sign in, each by a link of their own (default: you). Repeatable."
        ),
    ] = None,
    labels_per_answer: Annotated[
        int, typer.Option(help="Reviewers who judge each answer, apart from one another.")
    ] = 1,
    four_eyes: Annotated[
        bool, typer.Option("--four-eyes", help="A plan needs the approvals of two reviewers.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine only with --public.")
    ] = "127.0.0.1",
    public: Annotated[bool, typer.Option("--public", help="Other machines may reach the app.")] = False,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Further name of the app, such as a proxy's. Repeatable."),
    ] = None,
    https: Annotated[
        bool,
        typer.Option("--https", help="Browsers come by https, through a proxy: cookies are sent so alone."),
    ] = False,
) -> None:
    """Open the review app: people approve plans, compare and correct answers in the browser.

    emads simulate --team scripted --protocol full --reviewer web --db company.db   (waits for rulings)
    emads review company.db                                                         (in another terminal)
    """
    check_at_least("--labels-per-answer", labels_per_answer, 1)
    try:
        from serving.guard import settle_access
        from serving.review.room import ReviewSettings
        from serving.review.serve import find_store, serve_review
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "starlette"):
            raise
        raise UserError("reviewing needs FastAPI and uvicorn; pip install 'emads[http]'") from None
    store, queue = find_store(where)
    access = settle_access(port=port, host=host, is_public=public, names=name or (), has_own_tokens=True)
    settings = ReviewSettings(
        store=store,
        queue=queue,
        reviewers=tuple(dict.fromkeys(reviewer or [getpass.getuser()])),
        labels_per_item=labels_per_answer,
        four_eyes=four_eyes,
        is_secure=https,
    )
    serve_review(settings, access)
