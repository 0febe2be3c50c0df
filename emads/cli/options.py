"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_RUN = Path("runs/demo")

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
RunsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN",
        help=f"Run folders, default {DEFAULT_RUN}; a folder of several seeds stands for all of them.",
        show_default=False,
    ),
]
TeamOption = Annotated[
    str | None,
    typer.Option(
        "--team",
        help="In place of a RUN. scripted: experts in code, in every protocol, no training;"
        " NAME: the exported team in teams/NAME.",
    ),
]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="transformers or vllm (default: the run's engine.name).")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="YAML config file, e.g. configs/demo.yaml; makes a new run.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one config key: grpo.max_steps=20. Repeatable.")
]
PrintOption = Annotated[bool, typer.Option("--print-config", help="Print the resolved config and stop.")]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Go on with an existing run by its stored config; no --config or --set."),
]
TakeOption = Annotated[
    Path | None,
    typer.Option(
        "--take-from",
        help="Another run: stages that it finished under equal settings are taken over, not trained again.",
    ),
]
RoleOption = Annotated[
    list[str] | None, typer.Option("--role", help="Only this role. Repeatable; default: all roles.")
]
TeacherOption = Annotated[
    str | None,
    typer.Option(
        help="OpenAI-compatible endpoint whose model writes the demonstrations: http://host:8000/v1."
    ),
]
ModelOption = Annotated[str | None, typer.Option(help="The teacher's name at the endpoint.")]
ApiKeyOption = Annotated[
    str | None, typer.Option("--api-key-env", help="Environment variable that holds the API key.")
]
TeacherSetOption = Annotated[
    list[str] | None,
    typer.Option("--teacher-set", help="Set how the teacher is asked: concurrency=16. Repeatable."),
]
ProtocolOption = Annotated[
    str,
    typer.Option(help="assess: reports, decision, votes. full: also approval, execution, re-plans."),
]
ReviewerOption = Annotated[
    str | None,
    typer.Option(
        help="With --protocol full, who approves plans: simulated, terminal (you), or web (emads review)."
    ),
]
CompanyOption = Annotated[
    str | None,
    typer.Option(
        help="With --protocol full, play this company's cases in turn: its upgrades have lasting hidden "
        "traits, and later briefs tell what earlier cases showed."
    ),
]
WorldOption = Annotated[
    int | None,
    typer.Option(help="With --protocol full, seed of the shocks that plans meet (default 0)."),
]
AgentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--agent",
        help="Agent kind, chat, react or code: cto=code for one role. Repeatable.",
    ),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="Limit of every agent: turns=4; or turn_tokens, total_tokens, tool_calls, failed_calls.",
    ),
]
QuestionsOption = Annotated[
    int | None,
    typer.Option(
        help="Most questions of ReconcileGPT per case (default: as trained; full prompts: 1; scripted: 0)."
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--db", help="With --protocol full, SQLite file: the same call goes on where it stopped."),
]
