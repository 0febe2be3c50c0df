"""The team as an MCP server: tools decide, report and vote, and minutes of plays as resources.

Stateless, so any client of the protocol's versions can call it; Host, Origin and token are the guard's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field
from starlette.applications import Starlette

from roles.errors import InfrastructureError, UserError
from serving.endpoint.tables import BusyError, Tables

PATH = "/mcp"
INSTRUCTIONS = (
    "A team of company roles decides written cases. `decide` plays a whole case: reports, one funded plan,"
    " votes. `report` and `vote` let one seat speak. A case is YAML: title, budget, options, seats. Nothing"
    " here approves or carries out a plan."
)
Case = Annotated[str, Field(description="the case: YAML with title, budget, options and seats, or Markdown")]
Seat = Annotated[str, Field(description="cto, coo, risk or cost")]


@contextmanager
def _explained() -> Iterator[None]:
    """Tell the client why its call is refused."""
    try:
        yield
    except (UserError, BusyError, InfrastructureError) as error:
        raise ToolError(str(error)) from None


def make_mcp_app(tables: Tables, name: str) -> Starlette:
    """Return the server's app, whose lifespan must run; it answers at PATH.

    Its tools wait in the same queue as every other caller.
    """
    server: MCPServer[Any] = MCPServer(
        name=name, title=tables.team.label, instructions=INSTRUCTIONS, log_level="ERROR"
    )

    @server.tool()
    async def decide(case: Case) -> dict[str, Any]:
        """Play a whole case and return decision, reports, votes and the address of its minutes."""
        with _explained():
            played = await tables.decide(tables.read_case(case))
        return {**played.as_fields(), "minutes": f"minutes://{played.number}"}

    @server.tool()
    async def report(case: Case, seat: Seat) -> dict[str, str]:
        """Let one seat report: what it offers to buy on each option, with cost and worth."""
        with _explained():
            return {"seat": seat, "report": await tables.report(tables.read_case(case), seat)}

    @server.tool()
    async def vote(
        case: Case,
        seat: Seat,
        reports: Annotated[
            dict[str, str], Field(description="by seat, as `report` or `decide` returned them")
        ],
        decision: Annotated[
            str, Field(description='JSON: {"option": "A", "fund": [...], "escalate": false}')
        ],
    ) -> dict[str, str]:
        """Let one seat vote on a decision about these reports."""
        with _explained():
            return {"seat": seat, "vote": await tables.vote(tables.read_case(case), seat, reports, decision)}

    @server.resource("minutes://{number}", mime_type="text/plain")
    def minutes(number: str) -> str:
        """Minutes of one play: briefs, reports, decision and votes by role."""
        text = tables.minutes.get(number)
        if text is None:
            raise ResourceNotFoundError(f"no minutes {number}; decide returns their address")
        return text

    return server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=False
        ),  # the guard checks
    )
