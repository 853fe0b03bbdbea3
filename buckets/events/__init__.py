"""Events: the scripts' records of the moves that they make, for a journal.

If events are on, a script that moves jobs adds one entry to the stream of its shard: the field `m`, then an id and a
value for each job, in the order of the moves. The stream contains nothing else.

`m`: version (1 byte), verb (1), flags (1), the script's time in us since the epoch (7), then who made the move: the
instance and, if the request has an actor, a space and the actor.

A value: the state before the move (1 byte; 0 for no job or a tombstone), the record's `next` before the move (6), then
the record after the move. The record includes the body only if the move wrote it and it has at most 4096 bytes, and the
optional block only if the move wrote it. With the flag 1, all jobs of the entry are new, and their values are only the
record. For a job that ended, the record is its tombstone, or what the tombstone would have been. A value without a
record means that the job was set aside. A pause or a resume has an empty id and, in place of the record, the topic;
`next` is when the pause ends, or 0 if only a resume ends it.

For a schedule, the id is `~` and its name, the state before is 0, and the record is that of a schedule
(buckets/layout.py): the whole record if the schedule was defined or restored; only the header if its time had come, in
one entry with the jobs that were created, each of them an add; nothing if the schedule was removed.
"""
