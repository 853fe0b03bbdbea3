"""jobqueue.journal.explaining.timeline, waiting: a life in lines, and why it waited."""

from __future__ import annotations

import pytest

from buckets.job import Cause, State, Verb
from jobqueue.journal.explaining.timeline import Line, Sums, timeline, waits
from jobqueue.journal.explaining.told import FORGOTTEN, LOST, Gap, Meanwhile, Pause, why
from tests.jobqueue.journal.explaining.lives import NOON, Life, ms, us

D, R, V, X = State.DELAYED, State.READY, State.RESERVED, State.DEAD
F, G = State.FINISHED, State.DELETED


def lines(life: Life, tries: int | None = None) -> list[Line]:
    return timeline(life.history(), NOON, {}, tries).lines


def last(life: Life) -> Line:
    return lines(life)[-1]


def shown(line: Line) -> tuple[str, str, str]:
    return line.what, line.how, line.who


def order() -> Life:
    """The job of the example in docs/journal.md."""
    return (
        Life(due=ms(1800))
        .told(Verb.ADD, 0, D, 1800, instance="shop1:812:0")
        .told(Verb.DUE, 1800.002, R, instance="queue1:77:1")
        .told(Verb.POP, 1809.214, V, 1869.214, worker="billing-3")
        .told(Verb.DUE, 1869.220, D, 1884.220)
        .told(Verb.DUE, 1884.221, R)
        .told(Verb.POP, 1884.223, V, 1944.223, worker="billing-1")
        .told(Verb.FINISH, 1884.900, F, 1944.9)
    )


def test_each_event_is_a_line_with_the_lateness_or_waiting_of_its_step() -> None:
    meanwhile = Meanwhile(us(1800.002), us(1809.214), pauses=[], delivered=312)
    place = order().events[2].place
    told = timeline(order().history(), NOON, {place: meanwhile}, 16)
    assert [shown(line) for line in told.lines] == [
        ("added", "due 12:30:00.000", "shop1:812:0"),
        ("fell due", "+2 ms after its time", "queue1:77:1"),
        (
            "delivered",
            "waited 9.212 s: 312 jobs of the topic went before it, no pause",
            "worker billing-3, attempt 1 of 16",
        ),
        ("lease over", "60 s, 6 ms after its end; again by its back-off at 12:31:24.220", "q:1"),
        ("fell due", "+1 ms after its time", "q:1"),
        ("delivered", "waited 2 ms", "worker billing-1, attempt 2 of 16"),
        ("finished", "worked 677 ms", "q:1"),
    ]
    assert told.sums == Sums(
        timers_late=9_000,
        waited=9_214_000,
        worked=60_677_000,
        backed_off=15_000_000,
        deliveries=2,
        late=9_214_000,
    )


def test_a_wait_that_is_worth_it_is_to_be_explained() -> None:
    (wait,) = waits(order().events)
    assert (wait.place, wait.topic, wait.priority) == (order().events[2].place, "t", 4)
    assert (wait.begin, wait.end) == (us(1800.002), us(1809.214))


def test_a_job_that_was_ready_before_it_is_told_waited_since_the_ms_of_its_record() -> None:
    life = Life(after=R, next=ms(1), deliveries=0).told(Verb.POP, 3.0005, V, 63)
    assert last(life).waited == us(3.0005) - us(1)


RESERVED = {"after": V, "lease": us(1), "attempts": 1, "deliveries": 1, "next": ms(61)}
READY = {"after": R, "next": ms(1)}
DELAYED = {"after": D, "next": ms(60)}
DEAD = {"after": X, "next": ms(1)}
OF_EACH_VERB = [
    ({}, (Verb.ADD, 0, R), ("added", "ready at once", "q:1")),
    (READY, (Verb.REPLACE, 2, D, 86_400), ("replaced", "due 2026-11-26 12:00:00.000", "q:1")),
    ({}, (Verb.IMPORT, 2, D, 60), ("moved here", "from another Redis, due 12:01:00.000", "q:1")),
    (DELAYED, (Verb.EXPORT, 2, G), ("moved away", "to another Redis", "q:1")),
    (DELAYED, (Verb.RUN, 20, R), ("made due", "40 s before its time", "q:1")),
    (DELAYED, (Verb.UPDATE, 2, D, 90), ("updated", "due 12:01:30.000", "q:1")),
    (READY, (Verb.UPDATE, 2, R), ("updated", "ready at once", "q:1")),
    (DELAYED, (Verb.REWRITE, 2, D, 90), ("rewritten", "a new body, due 12:01:30.000", "q:1")),
    (DELAYED, (Verb.TAKE, 2, V, 62), ("taken", "by its id; it was delayed", "attempt 1")),
    (READY, (Verb.POP, 1.5, F, 60), ("delivered", "waited 500 ms, at most once: finished with it", "attempt 1")),
    (
        RESERVED,
        (Verb.UNPOP, 2, R),
        ("delivery undone", "it did not reach its worker; this delivery does not count", "q:1"),
    ),
    (RESERVED, (Verb.TOUCH, 31, V, 91), ("touched", "its lease lasts until 12:01:31.000", "q:1")),
    (RESERVED, (Verb.RELEASE, 3, R), ("released", "after 2 s, ready at once", "q:1")),
    (RESERVED, (Verb.RELEASE, 3, D, 18), ("released", "after 2 s, again at 12:00:18.000", "q:1")),
    (RESERVED, (Verb.BURY, 3, X), ("buried", "after 2 s", "q:1")),
    (RESERVED, (Verb.DELETE, 3, G), ("deleted", "it was reserved", "q:1")),
    (RESERVED, (Verb.DUE, 61.001, R), ("lease over", "60 s, 1 ms after its end; ready again at once", "q:1")),
    (READY, (Verb.FINISH, 3, F), ("finished", "by a worker whose lease was over; it was ready", "q:1")),
    (DELAYED, (Verb.PURGE, 3, G), ("purged", "it was delayed", "q:1")),
    (DEAD, (Verb.TRIM, 3, G), ("trimmed", "it was dead, beyond what its topic keeps", "q:1")),
    (DEAD, (Verb.KICK, 3, R), ("kicked", "it had been dead for 2 s", "q:1")),
    (DELAYED, (Verb.MEND, 3, D, 60), ("mended", "by fsck, due 12:01:00.000", "q:1")),
    (DELAYED, (Verb.ASIDE, 3, 0), ("set aside", "its record could not be read", "q:1")),
    ({}, (Verb.WALK, 3, V, 60), ("seen", "by a walk of the journal: reserved until 12:01:00.000", "")),
    (DELAYED, (Verb.VANISHED, 3, 0), ("vanished", "a walk did not find it in Redis: how it ended is not known", "")),
    (DELAYED, (99, 3, R), ("moved", "delayed to ready", "q:1")),
]


def test_each_verb_has_its_words(subtests: pytest.Subtests) -> None:
    for before, event, expected in OF_EACH_VERB:
        with subtests.test(before=before, event=event, expected=expected):
            assert shown(last(Life(**before).told(*event))) == expected  # type: ignore[arg-type]  # any number is a verb here


def test_the_verbs_that_are_missing_above_have_tests_of_their_own() -> None:
    told = {event[0] for _, event, _ in OF_EACH_VERB}
    of_schedules = {Verb.SCHEDULE, Verb.OCCUR, Verb.UNSCHEDULE}
    assert set(Verb) - told == {Verb.RESTORE, Verb.PAUSE, Verb.RESUME} | of_schedules


def test_a_restore_is_told_with_its_run() -> None:
    life = Life().told(Verb.RESTORE, 3, D, 60, actor="restore:7", instance="r:1")
    assert shown(last(life)) == ("restored", "by restore, run 7, due 12:01:00.000", "r:1")


def test_an_actor_is_told_with_the_instance() -> None:
    assert last(Life(after=X).told(Verb.KICK, 3, R, actor="ops/anna")).who == "ops/anna (q:1)"


def test_a_reason_stands_behind_all_else() -> None:
    life = Life(**RESERVED).told(Verb.RELEASE, 3, D, 18, reason="no connection")
    assert last(life).how == "after 2 s, again at 12:00:18.000: no connection"


def test_the_reason_of_a_release_is_no_reason_for_the_wait_before_the_next_delivery() -> None:
    for verb, after in ((Verb.POP, V), (Verb.TAKE, V), (Verb.UPDATE, R), (Verb.REWRITE, R)):
        life = Life(**READY).told(verb, 1.001, after, 61, reason="no connection")
        assert "no connection" not in last(life).how


@pytest.mark.parametrize(
    ("before", "verb", "cause", "what", "how"),
    [
        (READY, Verb.DUE, Cause.TTL, "ttl over", "dead: its ttl is over"),
        (DELAYED, Verb.DUE, Cause.TTL, "ttl over", "+1 ms after its time, dead: its ttl is over"),
        (RESERVED, Verb.DUE, Cause.TRIES, "ttl over", ""),
        (RESERVED, Verb.RELEASE, Cause.TRIES, "released", "after 59.001 s, dead: its tries are used up"),
    ],
)
def test_a_death_is_told_with_its_cause(before: dict[str, int], verb: Verb, cause: Cause, what: str, how: str) -> None:
    at = 61.0 if verb is Verb.DUE and before is RESERVED else 60.001
    line = last(Life(**before).told(verb, at, X, cause=cause))
    if before is RESERVED and verb is Verb.DUE:
        assert (line.what, line.how) == ("lease over", "60 s, 0 ms after its end, dead: its tries are used up")
    else:
        assert (line.what, line.how) == (what, how)


def test_a_delivery_that_did_not_reach_anybody_is_no_delivery() -> None:
    life = Life(**READY).told(Verb.POP, 2, V, 62).told(Verb.UNPOP, 2.1, R, deliveries=0, attempts=0)
    assert timeline(life.history(), NOON, {}).sums == Sums(waited=1_000_000)
    life.told(Verb.POP, 3, V, 63)
    assert timeline(life.history(), NOON, {}).sums.late == 3_000_000


def test_a_back_off_that_was_cut_short_counts_as_far_as_it_went() -> None:
    life = Life(**RESERVED).told(Verb.RELEASE, 3, D, 18).told(Verb.RUN, 8, R)
    assert last(life).backed_off == 5_000_000


def test_what_a_walk_has_seen_is_no_step() -> None:
    life = Life(**RESERVED).told(Verb.RELEASE, 3, D, 18)
    with_walk = life.told(Verb.WALK, 5, D, 18, branch=-1, before=0).told(Verb.DUE, 18.001, R, before=D)
    assert [line.backed_off for line in lines(with_walk)] == [None, None, 15_000_000]


def test_an_event_that_does_not_name_its_life_belongs_to_that_before_it() -> None:
    life = Life(after=D).told(Verb.UPDATE, 1, D, 60).told(Verb.ASIDE, 2, 0, life=0)
    assert [line.what for line in lines(life)] == ["updated", "set aside"]
    assert life.history().lives() == [NOON]


def gap(kind: int, begin: float, end: float, **fields: int) -> Gap:
    return Gap(kind, fields.get("epoch", 1), (ms(begin), 0), (ms(end), 99), fields.get("entries", 0), us(end))


def test_a_gap_is_a_line_where_it_ends() -> None:
    history = order().history(gaps=[gap(LOST, 1801, 1805, entries=393), gap(LOST, -90, -80), gap(LOST, 3000, 3001)])
    told = [shown(line) for line in timeline(history, NOON, {}).lines]
    assert [what for what, _, _ in told].count("gap") == 1
    assert told[2] == (
        "gap",
        "393 entries of its shard between 12:30:01.000 and 12:30:05.000 are missing: what happened to the job then is "
        "not known",
        "",
    )


def test_a_life_that_lasts_has_the_gaps_behind_its_last_event() -> None:
    life = Life().told(Verb.ADD, 0, D, 1800)
    assert [line.what for line in timeline(life.history(gaps=[gap(LOST, 5, 6)]), NOON, {}).lines] == ["added", "gap"]


def test_what_a_walk_reads_for_a_gap_stands_behind_it() -> None:
    life = Life().told(Verb.ADD, 0, D, 1800).told(Verb.WALK, 6.2, D, 1800, branch=-1, ms=ms(6), seq=99)
    history = life.history(gaps=[gap(LOST, 5, 6, entries=3)])
    assert [line.what for line in timeline(history, NOON, {}).lines] == ["added", "gap", "seen"]


def test_what_a_walk_reads_after_events_were_off_stands_behind_that_though_nothing_was_told() -> None:
    life = Life().told(Verb.ADD, 0, D, 1800).told(Verb.WALK, 6.2, D, 1800, branch=-1, ms=ms(0), seq=0)
    history = life.history(gaps=[gap(LOST, 0, 6)])
    assert [line.what for line in timeline(history, NOON, {}).lines] == ["added", "gap", "seen"]


def test_a_walk_from_before_a_failover_stands_before_it() -> None:
    walk = Life().told(Verb.ADD, 0, D, 1800).told(Verb.WALK, 5.9, D, 1800, branch=-1, ms=ms(6), seq=99)
    history = walk.history(gaps=[gap(FORGOTTEN, 5, 6)])
    assert [line.what for line in timeline(history, NOON, {}).lines] == ["added", "seen", "went back"]


def test_what_happened_before_redis_was_emptied_is_marked_and_summed() -> None:
    emptied = gap(FORGOTTEN, -NOON / 1000, 1900)._replace(begin=(0, 0), is_emptied=True)
    told = timeline(order().history(gaps=[emptied]), NOON, {})
    assert [line.is_forgotten for line in told.lines] == [True] * 7 + [False]
    assert shown(told.lines[-1])[:2] == (
        "emptied",
        "Redis was emptied or replaced, and lost what was recorded until 12:31:40.000",
    )
    assert told.sums == timeline(order().history(), NOON, {}).sums


def test_forgotten_events_are_told_as_such_and_not_summed() -> None:
    history = order().history(gaps=[gap(FORGOTTEN, 1800.5, 1900)])
    told = timeline(history, NOON, {})
    assert [line.is_forgotten for line in told.lines] == [False] * 2 + [True] * 5 + [False]
    assert told.lines[-1].what == "went back"
    assert told.lines[-1].how.startswith(
        "Redis went back, as in a failover, and lost what was recorded between 12:30:00.500 and "
    )
    assert told.sums == Sums(timers_late=2_000)


def test_what_came_in_the_place_of_forgotten_events_is_not_forgotten() -> None:
    life = Life().told(Verb.ADD, 0, D, 1800).told(Verb.RUN, 5, R, branch=1)
    history = life.history(gaps=[gap(FORGOTTEN, 4, 6)])
    assert [line.is_forgotten for line in timeline(history, NOON, {}).lines] == [False, False, False]


def meanwhile(**known: object) -> Meanwhile:
    """Of ten seconds."""
    return Meanwhile(us(0), us(10), **known)  # type: ignore[arg-type]  # by name


def test_waiting_is_explained_by_what_is_known(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({}, ""),
        ({"is_gap": True, "delivered": 5}, "why is not known, events of that time are missing"),
        ({"delivered": 1, "pauses": []}, "1 job of the topic went before it, no pause"),
        ({"delivered": 1, "is_least": True}, "at least 1 job of the topic went before it"),
        (
            {"delivered": 1200, "is_least": True, "of_any_priority": True},
            "at least 1,200 jobs of the topic, of any priority, were delivered",
        ),
        ({"delivered": 0, "pauses": []}, "no job of the topic was delivered: nobody popped it, no pause"),
        ({"delivered": 0}, "no job of the topic was delivered"),
        (
            {"delivered": 0, "pauses": [Pause(us(-5), None)]},
            "no job of the topic was delivered, the topic was paused throughout",
        ),
        (
            {"delivered": 3, "pauses": [Pause(us(-5), us(1)), Pause(us(2), us(4.5)), Pause(us(20), None)]},
            "3 jobs of the topic went before it, the topic was paused for 3.5 s of that time, until 12:00:04.500",
        ),
        ({"pauses": [Pause(us(9), None)]}, "the topic was paused for 1 s of that time"),
        (
            {"delivered": 2, "known_until": us(8)},
            "2 jobs of the topic went before it until 12:00:08.000",
        ),
        (
            {"delivered": 0, "known_until": us(8), "pauses": []},
            "no job of the topic was delivered until 12:00:08.000: nobody popped it, no pause",
        ),
    ]
    for known, words in cases:
        with subtests.test(known=known, words=words):
            assert why(meanwhile(**known)) == words
