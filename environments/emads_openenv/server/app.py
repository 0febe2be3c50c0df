"""The server that OpenEnv starts in a container; elsewhere: `emads serve-env --standard openenv`."""

import uvicorn

from serving.environments.openenv_env import make_app

app = make_app()


def main(host: str = "0.0.0.0", port: int = 8000) -> None:
    """Serve; in a container the platform guards the port."""
    uvicorn.run(app, host=host, port=port)


if __name__ == "__main__":
    main()
