"""The export of a journal to Parquet files. Each run continues where the last one ended.

    journal ── lines ──► batches ── forms ──► tables ── folder ──► events/date=2026-11-21/part-….parquet

`run` decides what must be written (days that are not closed, from where their files end) and reads it from the journal.
`lines` reads a query as fast as its database sends it; `forms` has the columns of the files; `folder` makes each file
appear only when it is complete.
"""
