"""One episode: agents, engines, the LangGraph team graph, episode records and the team reward."""
