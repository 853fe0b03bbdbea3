"""The export of a journal to Parquet files, which a repeated run completes.

    journal ── lines ──► batches ── forms ──► tables ── folder ──► events/date=2026-11-21/part-….parquet

`run` decides what is to be written, days that are not closed, from where their files end, and asks the journal for it.
`lines` reads a query as fast as its database gives it; `forms` are the columns of the files; `folder` makes each file
appear whole.
"""
