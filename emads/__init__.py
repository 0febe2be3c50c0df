"""Train, simulate and evaluate teams of LLM role agents: the public Python API and the command line.

Public names load on first use; `import emads` imports no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emads.api import FaultyPlayError, PlayedCase, evaluate, generate, open_run, play, train
    from emads.team import Team, load_team
    from roles.errors import UserError
    from training.runs.run_folder import Run

__all__ = [
    "FaultyPlayError",
    "PlayedCase",
    "Run",
    "Team",
    "UserError",
    "__version__",
    "evaluate",
    "generate",
    "load_team",
    "open_run",
    "play",
    "train",
]
try:
    __version__ = version("emads")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"
_HOMES = {  # of names that are not in emads.api
    "Team": "emads.team",
    "load_team": "emads.team",
    "Run": "training.runs.run_folder",
    "UserError": "roles.errors",
}


def __getattr__(name: str) -> Any:
    """Return a public name from the module that defines it."""
    if name not in __all__:
        raise AttributeError(f"module 'emads' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "emads.api")), name)


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
