"""Explaining a job: from facts to a timeline, its sums, and one sentence. Nothing here reads; `history` and
`buckets.pool.standing` do.

    what a journal tells ──► timeline, sums ──┐
                                              ├──► answer
    what Redis knows now ──► sentence ────────┘

`told` are the facts, `words` times and spans in words. Nothing is guessed: what no fact shows is not known.
"""
