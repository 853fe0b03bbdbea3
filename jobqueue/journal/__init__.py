"""The journal: every job's history in SQL, recorded from the events of the scripts (buckets/events).

    script ── entry, same shard ──► stream ──► reader ── one transaction a batch ──► SQL ──► explain, audit, export
                                                                     restore ◄─────────────┘

Each event is in SQL once: a batch is acknowledged in Redis after its transaction, which also moves the position of its
shard, and events up to the position are skipped. What is lost between Redis and the journal is recorded as a gap.

`tables` has what is stored, `views` what others may read; `store` is the contract for writing it, which is implemented
for each database.
"""
