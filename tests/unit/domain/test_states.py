"""Is the table of moves the state machine that was promised? (A3)"""

from __future__ import annotations

from itertools import product

import pytest

from jobs.domain.states import LIVE, MOVES, TERMINAL, Answer, State, Verb, accepts

TABLE = """
queued    running    claim     -
queued    running    expire    -
running   failed     expire    -
queued    cancelled  cancel    -
running   succeeded  succeed   token
running   queued     retry     token+1
running   queued     snooze    token
running   failed     fail      token
running   queued     reclaim   +1
running   failed     reclaim   -
running   cancelled  cancel    -
succeeded superseded supersede -
failed    superseded supersede -
cancelled superseded supersede -
"""


@pytest.mark.req("A3")
def test_the_moves_are_exactly_those_of_the_architecture() -> None:
    promised = {tuple(line.split()) for line in TABLE.strip().splitlines()}
    marks = {
        (m.source, m.target, m.verb): "token" * m.needs_token + "+1" * m.counts_attempt or "-"
        for m in MOVES
    }
    assert {(*move, mark) for move, mark in marks.items()} == promised
    assert len(marks) == len(MOVES)


@pytest.mark.req("A3")
def test_there_are_six_states_two_of_them_live() -> None:
    names = "cancelled failed queued running succeeded superseded"
    assert " ".join(sorted(State)) == names
    assert " ".join(sorted(LIVE)) == "queued running"
    assert set(State) - LIVE == TERMINAL


@pytest.mark.req("A3")
def test_an_ended_job_can_only_be_superseded_and_that_is_final() -> None:
    for state in TERMINAL:
        verbs = {verb for verb in Verb if accepts(state, verb)}
        assert verbs == (set() if state is State.SUPERSEDED else {Verb.SUPERSEDE})


@pytest.mark.req("A3")
@pytest.mark.parametrize("state", State)
def test_nothing_is_submitted_twice(state: State) -> None:
    assert not accepts(state, Verb.SUBMIT)


@pytest.mark.req("A14")
def test_every_move_that_a_worker_makes_out_of_running_needs_its_token() -> None:
    by_others = {Verb.CANCEL, Verb.RECLAIM, Verb.EXPIRE}
    for move in MOVES:
        leaves_running = move.source is State.RUNNING
        assert move.needs_token == (leaves_running and move.verb not in by_others)


@pytest.mark.req("A2")
def test_only_retry_and_reclaim_into_the_queue_count_an_attempt() -> None:
    counting = {(m.verb, m.target) for m in MOVES if m.counts_attempt}
    assert counting == {(Verb.RETRY, State.QUEUED), (Verb.RECLAIM, State.QUEUED)}


def test_every_state_can_be_reached_and_every_live_one_left() -> None:
    assert {m.target for m in MOVES} | {State.QUEUED} == set(State)
    assert {m.source for m in MOVES} >= LIVE


@pytest.mark.parametrize(("state", "verb"), list(product(State, Verb)))
def test_a_verb_is_accepted_where_a_move_begins(state: State, verb: Verb) -> None:
    begins = any(m.source is state and m.verb is verb for m in MOVES)
    second_half = (state, verb) == (State.RUNNING, Verb.EXPIRE)
    assert accepts(state, verb) == (begins and not second_half)


def test_words_are_their_own_spelling() -> None:
    assert all(word == word.lower() for word in [*State, *Verb])
    assert all(word == word.upper() for word in Answer)
