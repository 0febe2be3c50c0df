"""One player at a time: claims on threads are refused while held, and free after a kill."""

import os
import signal
import time
from pathlib import Path

import pytest

from roles.errors import InfrastructureError
from simulator.governance.store.thread_claims import ThreadClaims


def test_a_thread_that_is_played_is_refused_until_it_has_ended(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    first, second = ThreadClaims(store), ThreadClaims(store)
    with first.hold("t1"):
        with pytest.raises(InfrastructureError, match="'t1' is being played already"), second.hold("t1"):
            pass
        with second.hold("t2"):
            pass
    with second.hold("t1"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_player_s_thread_is_free(tmp_path: Path) -> None:
    claims, (told, tell) = ThreadClaims(tmp_path / "store.db"), os.pipe()
    player = os.fork()
    if not player:
        with claims.hold("t1"):
            os.write(tell, b"held")
            signal.pause()
    assert os.read(told, 4) == b"held"
    with pytest.raises(InfrastructureError), claims.hold("t1"):
        pass
    os.kill(player, signal.SIGKILL)
    os.waitpid(player, 0)
    with claims.hold("t1"):
        pass


def test_players_in_turn_never_hold_one_thread_together(tmp_path: Path) -> None:
    """Files come and go while others open them; a counter without a lock of its own misses no turn."""
    store, counter, num_turns = tmp_path / "store.db", tmp_path / "counter", 60
    counter.write_text("0")
    players = []
    for _ in range(3):
        player = os.fork()
        if player:
            players.append(player)
            continue
        done = 0
        while done < num_turns:
            try:
                with ThreadClaims(store).hold("t1"):
                    counter.write_text(str(int(counter.read_text()) + 1))
                    done += 1
            except InfrastructureError:
                time.sleep(0.0005)  # whoever holds it needs a core to let go
        os._exit(0)
    assert [os.waitpid(player, 0)[1] for player in players] == [0, 0, 0]
    assert counter.read_text() == str(3 * num_turns)


def test_threads_of_a_store_in_memory_need_no_claim() -> None:
    claims = ThreadClaims(None)
    with claims.hold("t1"), claims.hold("t1"):
        pass
