"""Exchanges with a beanstalkd, line by line: `>` is sent, `<` must come back, `.` too, but as a line of a document.
Lines that are sent in a row are sent at once. `{t}` and `{u}` are tubes that nobody else uses, `{a}` to `{c}` the
numbers that an answer gave them, `{7}` as many characters, `{_}` is a space; `(closed)` is where the connection
ends."""

from __future__ import annotations

SAME = {
    "a job is put, reserved and deleted": """
        > use {t}
        < USING {t}
        > put 1024 0 60 7
        > {"a":1}
        < INSERTED {a}
        > watch {t}
        < WATCHING 2
        > reserve
        < RESERVED {a} 7
        < {"a":1}
        > delete {a}
        < DELETED
        > delete {a}
        < NOT_FOUND
        > reserve-with-timeout 0
        < TIMED_OUT
    """,
    "commands sent at once are answered in order": """
        > use {t}
        > put 10 0 60 1
        > x
        > watch {t}
        > ignore default
        > reserve-with-timeout 5
        > list-tube-used
        < USING {t}
        < INSERTED {a}
        < WATCHING 2
        < WATCHING 1
        < RESERVED {a} 1
        < x
        < USING {t}
    """,
    "data may be empty, and may look like commands": """
        > use {t}
        < USING {t}
        > put 1 0 60 0
        >
        < INSERTED {a}
        > put 2 0 60 8
        > delete 1
        < INSERTED {b}
        > peek {a}
        < FOUND {a} 0
        <
        > peek {b}
        < FOUND {b} 8
        < delete 1
    """,
    "a delay may be as long as a number can be, and the data are still the job's": """
        > use {t}
        > put 1 4294967295 60 8
        > delete 1
        > list-tube-used
        < USING {t}
        < INSERTED {a}
        < USING {t}
        > peek {a}
        < FOUND {a} 8
        < delete 1
        > put 1 4294967296 60 1
        < BAD_FORMAT
        > put 1 0 60 1
        > x
        < INSERTED {b}
        > reserve-job {b}
        < RESERVED {b} 1
        < x
        > release {b} 1 4294967295
        < RELEASED
    """,
    "a put that cannot be read leaves its data, which are the next command": """
        > put 1 0 0
        < BAD_FORMAT
        > put a 0 60 1
        > list-tube-used
        < BAD_FORMAT
        < USING default
        > put 1 0 60 1x
        < BAD_FORMAT
        > put 1x 0 60 1
        < BAD_FORMAT
        > put -1 0 60 1
        < BAD_FORMAT
        > put 4294967296 0 60 1
        < BAD_FORMAT
        > put 1 4294967296 60 1
        < BAD_FORMAT
        > put 1 0 4294967296 1
        < BAD_FORMAT
        > put 1 0 60 99999999999999999999999
        < BAD_FORMAT
        > put 1 0 60 1{_}
        < BAD_FORMAT
        > put
        < UNKNOWN_COMMAND
        > put{_}
        < BAD_FORMAT
    """,
    "more than one space is one": """
        > use {t}
        < USING {t}
        > put  1  0  60  1
        > x
        < INSERTED {a}
        > delete  {a}
        < DELETED
    """,
    "data without their end are refused, and the rest is a command": """
        > put 1 0 60 3
        > abcdefg
        < EXPECTED_CRLF
        < UNKNOWN_COMMAND
        > list-tube-used
        < USING default
    """,
    "data that are too big are skipped": """
        > put 1 0 60 65536
        > {65536}
        > list-tube-used
        < JOB_TOO_BIG
        < USING default
    """,
    "data of the largest size are taken": """
        > use {t}
        < USING {t}
        > put 1 0 60 65535
        > {65535}
        < INSERTED {a}
        > peek-ready
        < FOUND {a} 65535
        < {65535}
    """,
    "a line may have 224 bytes and no more": """
        > list-tube-used
        < USING default
        > {222}
        < UNKNOWN_COMMAND
        > {500}
        > list-tube-used
        < BAD_FORMAT
        < USING default
    """,
    "a tube has up to 200 characters of its own kind": """
        > use {200}
        < USING {200}
        > use {201}
        < BAD_FORMAT
        > use a-+/;.$_()Z9
        < USING a-+/;.$_()Z9
        > use -a
        < BAD_FORMAT
        > use a b
        < BAD_FORMAT
        > use  a
        < BAD_FORMAT
        > use a=b
        < BAD_FORMAT
        > watch é
        < BAD_FORMAT
        > ignore a%20
        < BAD_FORMAT
        > use{_}
        < BAD_FORMAT
        > use
        < UNKNOWN_COMMAND
    """,
    "the last tube is not ignored": """
        > ignore default
        < NOT_IGNORED
        > ignore {u}
        < WATCHING 1
        > watch {t}
        > watch {t}
        < WATCHING 2
        < WATCHING 2
        > ignore default
        < WATCHING 1
        > ignore {t}
        < NOT_IGNORED
        > list-tubes-watched
        < OK {*}
        . ---
        . - {t}
        <
    """,
    "smaller priorities come first": """
        > use {t}
        > put 5000 0 60 1
        > c
        > put 0 0 60 1
        > a
        > put 100 0 60 1
        > b
        < USING {t}
        < INSERTED {c}
        < INSERTED {a}
        < INSERTED {b}
        > watch {t}
        > reserve
        > reserve
        > reserve
        < WATCHING 2
        < RESERVED {a} 1
        < a
        < RESERVED {b} 1
        < b
        < RESERVED {c} 1
        < c
    """,
    "smaller priorities come first across tubes, too": """
        > use {u}
        > put 5000 0 60 1
        > b
        > use {t}
        > put 1 0 60 1
        > a
        < USING {u}
        < INSERTED {b}
        < USING {t}
        < INSERTED {a}
        > watch {u}
        > watch {t}
        > reserve
        > reserve
        < WATCHING 2
        < WATCHING 3
        < RESERVED {a} 1
        < a
        < RESERVED {b} 1
        < b
    """,
    "a released job is ready again, or later": """
        > use {t}
        > watch {t}
        > put 1024 0 60 1
        > x
        > reserve
        < USING {t}
        < WATCHING 2
        < INSERTED {a}
        < RESERVED {a} 1
        < x
        > release {a} 7 0
        < RELEASED
        > release {a} 7 0
        < NOT_FOUND
        > reserve
        < RESERVED {a} 1
        < x
        > release {a} 7 100
        < RELEASED
        > peek-delayed
        < FOUND {a} 1
        < x
        > reserve-with-timeout 0
        < TIMED_OUT
        > delete {a}
        < DELETED
    """,
    "a buried job waits for a kick": """
        > use {t}
        > watch {t}
        > put 1024 0 60 1
        > x
        > reserve
        < USING {t}
        < WATCHING 2
        < INSERTED {a}
        < RESERVED {a} 1
        < x
        > bury {a} 9
        < BURIED
        > bury {a} 9
        < NOT_FOUND
        > peek-buried
        < FOUND {a} 1
        < x
        > reserve-with-timeout 0
        < TIMED_OUT
        > kick 10
        < KICKED 1
        > kick 10
        < KICKED 0
        > peek-ready
        < FOUND {a} 1
        < x
    """,
    "where nothing is buried a kick makes delayed jobs ready, the next first": """
        > use {t}
        > put 1 200 60 1
        > b
        > put 1 100 60 1
        > a
        < USING {t}
        < INSERTED {b}
        < INSERTED {a}
        > kick 0
        < KICKED 0
        > kick 1
        < KICKED 1
        > peek-ready
        < FOUND {a} 1
        < a
        > peek-delayed
        < FOUND {b} 1
        < b
        > kick 18446744073709551615
        < KICKED 1
    """,
    "one job is kicked by its number": """
        > use {t}
        > watch {t}
        > put 1 100 60 1
        > a
        < USING {t}
        < WATCHING 2
        < INSERTED {a}
        > kick-job {a}
        < KICKED
        > kick-job {a}
        < NOT_FOUND
        > reserve
        < RESERVED {a} 1
        < a
        > kick-job {a}
        < NOT_FOUND
        > bury {a} 1
        < BURIED
        > kick-job {a}
        < KICKED
    """,
    "one job is reserved by its number, in any state but reserved": """
        > use {t}
        > put 1 100 60 1
        > a
        < USING {t}
        < INSERTED {a}
        > reserve-job {a}
        < RESERVED {a} 1
        < a
        > reserve-job {a}
        < NOT_FOUND
        > bury {a} 1
        < BURIED
        > reserve-job {a}
        < RESERVED {a} 1
        < a
        > release {a} 1 0
        < RELEASED
        > reserve-job {a}
        < RESERVED {a} 1
        < a
        > delete {a}
        < DELETED
    """,
    "a job is deleted in any state": """
        > use {t}
        > watch {t}
        > put 1 100 60 1
        > a
        > put 1 0 60 1
        > b
        > put 1 0 60 1
        > c
        < USING {t}
        < WATCHING 2
        < INSERTED {a}
        < INSERTED {b}
        < INSERTED {c}
        > reserve
        < RESERVED {b} 1
        < b
        > bury {b} 1
        < BURIED
        > delete {a}
        > delete {b}
        > delete {c}
        < DELETED
        < DELETED
        < DELETED
    """,
    "a lease is renewed": """
        > use {t}
        > watch {t}
        > put 1 0 60 1
        > a
        < USING {t}
        < WATCHING 2
        < INSERTED {a}
        > touch {a}
        < NOT_FOUND
        > reserve
        < RESERVED {a} 1
        < a
        > touch {a}
        < TOUCHED
    """,
    "an empty tube has nothing to look at": """
        > use {t}
        < USING {t}
        > peek-ready
        < NOT_FOUND
        > peek-delayed
        < NOT_FOUND
        > peek-buried
        < NOT_FOUND
    """,
    "a number that names no job is not found": """
        > delete 2147483646
        < NOT_FOUND
        > delete 18446744073709551615
        < NOT_FOUND
        > release 2147483646 0 0
        < NOT_FOUND
        > bury 2147483646 0
        < NOT_FOUND
        > touch 2147483646
        < NOT_FOUND
        > kick-job 2147483646
        < NOT_FOUND
        > reserve-job 2147483646
        < NOT_FOUND
        > peek 0
        < NOT_FOUND
        > stats-job 2147483646
        < NOT_FOUND
    """,
    "what is not a number is refused": """
        > delete x
        > delete -1
        > delete 1 2
        > delete 18446744073709551616
        > delete{_}
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        > release 1
        > release 1 2
        > release 1 2 3 4
        > release 1 4294967296 0
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        > bury 1
        > bury 1 4294967296
        > touch x
        > touch 1 2
        > kick x
        > kick-job x
        > peek x
        > reserve-job x
        > stats-job x
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        > reserve-with-timeout 99999999999999999999
        < BAD_FORMAT
    """,
    "commands without arguments take none": """
        > reserve x
        > peek-ready x
        > list-tubes x
        > list-tubesx
        > list-tube-used x
        > stats x
        > statsx
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
    """,
    "other commands are unknown": """
        > list-tube-used
        < USING default
        > foo
        > PUT 1 0 60 1
        >
        > delete
        > touch
        > peek
        > peek-foo
        > kick-job
        < UNKNOWN_COMMAND
        < UNKNOWN_COMMAND
        < UNKNOWN_COMMAND
        < UNKNOWN_COMMAND
        < UNKNOWN_COMMAND
        < UNKNOWN_COMMAND
        < UNKNOWN_COMMAND
        < UNKNOWN_COMMAND
    """,
    "a paused tube hands out nothing until it is resumed": """
        > use {t}
        > watch {t}
        > put 1 0 60 1
        > a
        < USING {t}
        < WATCHING 2
        < INSERTED {a}
        > pause-tube {t} 1000
        < PAUSED
        > reserve-with-timeout 0
        < TIMED_OUT
        > pause-tube {t} 0
        < PAUSED
        > reserve
        < RESERVED {a} 1
        < a
    """,
    "only a tube that is there can be paused": """
        > pause-tube {t} 0
        < NOT_FOUND
        > watch {t}
        > pause-tube {t} 0
        < WATCHING 2
        < PAUSED
        > pause-tube {t}
        > pause-tube {t} x
        > pause-tube {t} 0{_}
        > pause-tube -a 0
        > pause-tube
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
    """,
    "statistics are of what is there": """
        > stats-tube {t}
        < NOT_FOUND
        > stats-tube -a
        < BAD_FORMAT
    """,
    "a job with a second to run is due soon at once": """
        > use {t}
        > watch {t}
        > put 1 0 1 1
        > a
        > reserve
        > reserve
        > reserve-with-timeout 0
        > put 1 0 60 1
        > b
        > reserve-with-timeout 0
        < USING {t}
        < WATCHING 2
        < INSERTED {a}
        < RESERVED {a} 1
        < a
        < DEADLINE_SOON
        < DEADLINE_SOON
        < INSERTED {b}
        < RESERVED {b} 1
        < b
    """,
    "quit closes": """
        > quit
        > list-tube-used
        < (closed)
    """,
}
"""Both answer the same."""

OURS = {
    "arguments are digits, for all commands": """
        > reserve-with-timeout -1
        > reserve-with-timeout x
        > kick 10x
        > kick 10 1
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
        < BAD_FORMAT
    """,
    "a first line that is no command closes": """
        > USER anonymous
        > put 1 0 60 1
        > x
        < UNKNOWN_COMMAND
        < (closed)
    """,
    "a first line that is too long closes": """
        > x{500}
        > put 1 0 60 1
        > x
        < BAD_FORMAT
        < (closed)
    """,
    "a request over HTTP closes": """
        > POST / HTTP/1.1
        > list-tube-used
        < (closed)
    """,
    "so does one with a long path": """
        > POST /{500} HTTP/1.1
        > list-tube-used
        < (closed)
    """,
    "later it is any line": """
        > list-tube-used
        > POST / HTTP/1.1
        < USING default
        < UNKNOWN_COMMAND
    """,
    "a line with a NUL is refused": """
        > list-tube-used
        < USING default
        > list-tube-used{0}
        > foo{0}
        < BAD_FORMAT
        < BAD_FORMAT
    """,
}
"""Ours differs on purpose, or theirs depends on how the bytes come."""
