"""The verbs by name, and how a call ends: every mistake of the user is one line and exit status 2."""

import gc
import inspect
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from emads.cli import data, evaluate, serve, simulate, train
from roles.errors import UserError, unknown
from simulator.export.atomic_files import SYSTEM_ERRORS

INTERRUPTED = 130
NEW_OBJECTS = 10_000  # between two garbage collections; the usual 700 cost a fifth of the imports' time
KEPT = {  # by verb: what an interrupted call leaves for the next one
    **dict.fromkeys(("demo", "run", "train", "ablate"), "finished stages and the newest checkpoints"),
    **dict.fromkeys(("evaluate", "bench"), "finished plays"),
    "generate": "finished shards",
}

VERBS: dict[str, Callable[..., Any]] = {
    "simulate": simulate.simulate,
    "review": serve.review,
    "demo": train.demo,
    "train": train.train,
    "plan": train.plan,
    "run": train.run_schedule,
    "evaluate": evaluate.evaluate,
    "play": evaluate.play,
    "report": evaluate.report,
    "diagnose": evaluate.diagnose,
    "ablate": evaluate.ablate,
    "bench": evaluate.bench,
    "audit": evaluate.audit,
    "judge": evaluate.judge,
    "generate": data.generate,
    "validate": data.validate,
    "import": data.import_tasks,
    "conformance": data.conformance,
    "serve-env": serve.serve_env,
    "export": serve.export,
    "verify": serve.verify,
    "serve": serve.serve,
}


class VerbGroup(TyperGroup):
    """Verbs with the nearest match for a mistyped one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb that the arguments begin with.

        Raises:
            UserError: unknown verb.
        """
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("verb", args[0], list(self.commands))
        return super().resolve_command(ctx, args)


def show_version(asked: bool) -> None:
    """Print the installed version and end the program."""
    if asked:
        from emads import __version__

        typer.echo(f"emads {__version__}")
        raise typer.Exit


def describe_program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Print the version.")
    ] = False,
) -> None:
    """Train, simulate and evaluate teams of LLM role agents that make company decisions together.

    A RUN is a folder such as runs/demo: its config, weights, scores and report.
    """


def make_group(verbs: Mapping[str, Callable[..., Any]], **settings: Any) -> typer.Typer:
    """Return the verbs as one command group; lists show the whole first line of each verb's help."""
    group = typer.Typer(cls=VerbGroup, no_args_is_help=True, rich_markup_mode=None, **settings)
    for name, verb in verbs.items():
        group.command(name, short_help=(inspect.getdoc(verb) or "").split("\n\n")[0])(verb)
    return group


app = make_group(VERBS, name="emads", add_completion=False, pretty_exceptions_enable=False)
app.callback()(describe_program)
LABEL_VERBS: dict[str, Callable[..., Any]] = {"simulate": data.simulate_labels, "show": data.show_labels}
LABELS_HELP = "Labels of reviewers: simulate them, count them."
app.add_typer(make_group(LABEL_VERBS, help=LABELS_HELP), name="labels", short_help=LABELS_HELP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status: 2 for a mistake of the user, 130 when interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if 0 < gc.get_threshold()[0] < NEW_OBJECTS:
        gc.set_threshold(NEW_OBJECTS)
    try:
        status = app(args=arguments, prog_name="emads", standalone_mode=False)
    except UserError as error:
        return _complain(str(error), error.status)
    except typer.TyperException as error:
        message = error.format_message()
        if not message.startswith("Usage:"):
            return _complain(message)
        print(message, file=sys.stderr)  # no verb was given: this is the help
        return 2
    except OSError as error:
        if error.errno not in SYSTEM_ERRORS:
            raise
        return _complain(f"{error.strerror}: {error.filename or 'while writing'}")
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    if status == INTERRUPTED:  # which typer returns by itself, in silence
        kept = KEPT.get(arguments[0] if arguments else "")
        again = f"; {kept} are kept, the same command goes on: emads {shlex.join(arguments)}" if kept else ""
        return _complain(f"interrupted{again}", INTERRUPTED)
    return status if isinstance(status, int) else 0


def _complain(message: str, status: int = 2) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return status
