"""Events: what the scripts tell of the moves that they make, for a journal.

Where events are on, a script that moves jobs adds one entry to the stream of its shard: the field `m`, then an id and
a value for each job, in the order of the moves. Nothing else is in the stream.

`m`: version (1 byte), verb (1), flags (1), the script's time in us since the epoch (7), then who made the move: the
instance and, behind a space, the actor of the request where there is one.

A value: the state before (1 byte; 0: none, or a tombstone), the record's `next` before (6), then the record as it is
after the move. Its body is there only if the move wrote it and it has at most 4096 bytes, its optional block
only if the move wrote it. With the flag 1 all jobs of the entry are new, and their values are only the record. A
job that ended has its tombstone, or what that would be. A value without a record says that the job was set aside. A
pause or a resume has an empty id and, in place of the record, the topic; `next` is when the pause ends (0: when it is
resumed).

A schedule has the id `~` and its name, no state before, and in place of the record its own (buckets/layout.py): whole
where it was defined or restored; only the header where its time had come, in one entry with the jobs that were made,
each of them an add; nothing where it was removed.
"""
