"""An upload is one commit that holds exactly the folder; a hub that refuses is named."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from exported_teams import make_random_run

from emads.cli import main
from roles.errors import UserError
from training.export.export import export_team
from training.export.push import check_repository, push_folder
from training.export.team_folder import TeamFolder, open_team_folder


class FakeHub(BaseHTTPRequestHandler):
    """Takes a repository and one commit, as a hub's API does; keeps what it was sent."""

    repositories: list[dict[str, Any]]
    commits: list[list[dict[str, Any]]]
    status = 200

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer({"id": "org/name", "sha": "0" * 40, "siblings": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.status != 200:
            return self.answer({"error": "no"})
        if self.path == "/api/repos/create":
            self.repositories.append(json.loads(body))
            return self.answer({"url": f"http://{self.headers['Host']}/org/name", "name": "org/name"})
        if self.path.endswith("/preupload/main"):
            files = [{"path": one["path"], "uploadMode": "regular"} for one in json.loads(body)["files"]]
            return self.answer({"files": [{**one, "shouldIgnore": False} for one in files]})
        if self.path.endswith("/commit/main"):
            self.commits.append([json.loads(line) for line in body.splitlines()])
            url = f"http://{self.headers['Host']}/org/name/commit/{'1' * 40}"
            return self.answer({"commitUrl": url, "commitOid": "1" * 40, "success": True})
        self.answer({"errors": [], "warnings": []})

    def answer(self, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def hub(status: int = 200) -> Iterator[tuple[str, type[FakeHub]]]:
    """A running fake, by its address and what it kept."""
    handler = type("Hub", (FakeHub,), {"repositories": [], "commits": [], "status": status})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> TeamFolder:
    run = make_random_run(tmp_path_factory.mktemp("runs") / "full")
    return export_team(run, run.path.parent / "exported")


def test_what_the_hub_gets_is_the_folder_and_verifies(folder: TeamFolder, tmp_path: Path) -> None:
    with hub() as (url, kept):
        address = push_folder(folder, "org/name", hub=url)
    assert address.endswith("1" * 40)
    (made,) = kept.repositories
    assert made["visibility"] == "private"
    (commit,) = kept.commits
    for line in commit:
        if line["key"] == "file":
            target = tmp_path / "downloaded" / line["value"]["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(base64.b64decode(line["value"]["content"]))
    (tmp_path / "downloaded/.gitattributes").write_text("*.safetensors filter=lfs")
    assert open_team_folder(tmp_path / "downloaded").record == folder.record


def test_a_public_repository_is_made_only_when_asked_for(folder: TeamFolder) -> None:
    with hub() as (url, kept):
        push_folder(folder, "org/name", hub=url, is_public=True)
    assert kept.repositories[0]["visibility"] == "public"


@pytest.mark.parametrize(("status", "said"), [(401, "hf auth login"), (403, "may not write"), (500, "500")])
def test_a_hub_that_refuses_is_a_users_error(status: int, said: str, folder: TeamFolder) -> None:
    with hub(status) as (url, _), pytest.raises(UserError, match=said):
        push_folder(folder, "org/name", hub=url)


def test_a_hub_that_is_not_there_is_a_users_error(folder: TeamFolder) -> None:
    with hub() as (url, _):
        pass
    with pytest.raises(UserError, match="org/name"):
        push_folder(folder, "org/name", hub=url)


@pytest.mark.parametrize("name", ["name", "org/name/more", "../x", "org/.hidden", "", "a b/c"])
def test_a_name_that_is_none_is_refused_before_anything_is_written(
    name: str, folder: TeamFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder.path.parent / "full"
    assert main(["export", str(run), "--to", str(tmp_path / "to"), "--push", name]) == 2
    assert "ORG/NAME" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


def test_an_address_without_tls_is_refused_elsewhere() -> None:
    with pytest.raises(UserError, match="https"):
        check_repository("org/name", "http://hub.example")
    with pytest.raises(UserError, match="go with --push"):
        check_repository(None, "https://hub.example")
    check_repository("org/name", "https://hub.example")
