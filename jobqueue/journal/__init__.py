"""The journal: every job's history in SQL, told by the events of the scripts (buckets/events).

    script ── entry, same shard ──► stream ──► reader ── one transaction a batch ──► SQL ──► explain, audit, export
                                                                     restore ◄─────────────┘

Each event stands in SQL once: a batch is acknowledged in Redis behind its transaction, which also moves the position of
its shard, and events up to the position are passed over. What is lost between Redis and here is a gap, and known.

`tables` is what is stored, `views` what others may read; `store` is the contract of what writes it, with a member for
each database.
"""
