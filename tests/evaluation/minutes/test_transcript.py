"""Transcripts: what people read of an episode, hostile model text included."""

from dataclasses import replace

import pytest

from evaluation.minutes.transcript import EpisodeTranscript, render_side_by_side_html, render_text, transcript
from evaluation.minutes.words import MAX_SHOWN_CHARS, readable, visible
from simulator.records import Episode, Question, Trajectory, Turn
from simulator.reward import TeamVerdict

BRIEFS = {"cto": "Northbank. Budget 40.\nLatency counts.", "coo": "Northbank. Budget 40.\nDays count."}
REPORT = (
    'lean\n{"offers": [{"option": "A", "part": ["cache", "spare gateway"], "cost": 15, "worth": 22}], '
    '"needs": ["A"], "veto": ["C", "B"], "note": ""}'
)
ASK = '{"ask": {"seat": "cto", "option": "B", "cost_at_most": 9}}'
VERDICT = TeamVerdict(
    reward=0.95,
    value=1.0,
    consensus=0.75,
    unresolved=0.0,
    escalation=0.0,
    explanation="B is the best option",
)


def played(
    decision: str = '{"option": "B", "fund": ["cto", "risk"], "escalate": false}', *, cut_off: bool = False
) -> Episode:
    turn = Turn(
        context_ids=(1, 2),
        completion_ids=(3,),
        logprobs=(-0.1,),
        finish_reason="stop",
        text="x",
        policy_version="cto@0",
    )
    path = Trajectory(
        role="cto",
        session="s",
        turns=(turn,),
        num_tool_calls=0,
        num_valid_tool_calls=0,
        ended_by="turn_tokens" if cut_off else "answer",
        final_text="x",
    )
    return Episode(
        scenario_key="team/test/0/7/2",
        index_in_group=0,
        trajectories={"cto": path},
        reports={"cto": REPORT, "coo": ""},
        asked=(Question(ask=ASK, reply='{"offer": null}'),),
        decision=decision,
        votes={"cto": '{"vote": "accept"}', "coo": "hm"},
    )


def after(
    decision: str = '{"option": "B", "fund": ["cto", "risk"], "escalate": false}', *, label: str = "after"
) -> EpisodeTranscript:
    return transcript(played(decision), VERDICT, briefs=BRIEFS, label=label)


def test_an_episode_reads_in_the_order_of_play() -> None:
    text = render_text(after())
    parts = [
        "All seats read",
        "Northbank. Budget 40.",
        "CTO reads",
        "Latency counts.",
        "CTO reports",
        "A: cache + spare gateway, cost 15, worth 22",
        "needs A, veto C, B",
        "habit: lean",
        "COO reads",
        "Days count.",
        "COO reports",
        "(nothing)",
        "Question",
        "ask cto for another offer on B that costs at most 9",
        "Reply",
        "offer none",
        "Decision",
        "option B, fund cto, risk, escalate no",
        "Votes",
        "CTO: accept",
        "COO: hm",
        "team reward R: 0.950",
        "value V: 1.000",
        "justified agreement C: 0.750",
        "B is the best option",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert text.count("Northbank") == 1


def test_faults_and_limits_are_said() -> None:
    episode = replace(played(cut_off=True), error="engine lost")
    text = render_text(transcript(episode, None, briefs={}))
    assert "(cut off by a limit)" in text
    assert "not scored, infrastructure fault: engine lost" in text


@pytest.mark.parametrize(
    "attack", ["<script>alert(1)</script>", '"><img src=x onerror=y>', "{{ 7 * 7 }}", "&lt;"]
)
def test_model_text_is_escaped_in_html(attack: str) -> None:
    hostile = transcript(
        replace(played(attack), reports={attack: attack}, votes={"cto": attack}, error=attack),
        None,
        briefs={"cto": attack},
        label=attack,
        unscored=attack,
    )
    html = str(render_side_by_side_html((hostile, after("&lt;"))))
    assert "<script" not in html
    assert "<img" not in html
    assert "49" not in html
    assert "&amp;lt;" in html


def test_control_and_direction_characters_are_spelled_out() -> None:
    assert visible("a\x1b[31mb\u202ec\x00\nd") == "a\\x1b[31mb\\u202ec\\x00\nd"
    assert "\x1b" not in render_text(after("\x1b[2J"))
    assert "\x1b" not in render_text(after('{"option": "\\u001b[2J", "escalate": false}'))


def test_long_text_is_cut() -> None:
    shown = visible("x" * (MAX_SHOWN_CHARS + 5))
    assert shown == "x" * MAX_SHOWN_CHARS + " ... (5 more characters)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'B 3 {"a": [], "b": true, "c": {"d": 1}, "e": 2.5} ok',
            'b yes, c {"d": 1}, e 2.5\nalso wrote: B 3 ok',
        ),
        ('exact {"a": 1}', "a 1\nnames its habit: exact"),
        ('{"offers": []}', "nothing"),
        ('{"offers": [{"option": "A"}]}', 'offers [{"option": "A"}]'),
        ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ('{"a": NaN}', '{"a": NaN}'),
        ("}{", "}{"),
        ('{"a": 1} {"a": 2}', '{"a": 1} {"a": 2}'),
        ('of {x, y} {"b": 2}', "b 2\nalso wrote: of {x, y}"),
        ("  \n", "(nothing)"),
        ("[1]", "[1]"),
        ("{" * 5000, visible("{" * 5000)),
        ("\ud800", "\\ud800"),
    ],
)
def test_only_a_strict_answer_is_put_into_words(text: str, expected: str) -> None:
    assert readable(text) == expected
