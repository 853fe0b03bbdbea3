"""Explains a job: turns facts into a timeline, its sums, and one sentence. Nothing here reads data; `history` and
`buckets.pool.standing` do.

    what a journal knows ──► timeline, sums ──┐
                                              ├──► answer
    what Redis knows now ──► sentence ────────┘

`told` has the facts, `words` puts times and spans in words. Nothing is guessed: what no fact shows is reported as
unknown.
"""
