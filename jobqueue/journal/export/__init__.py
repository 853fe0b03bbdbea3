"""The export of a journal to Parquet files, which a repeated run completes.

    source ── lines ──► batches ── forms ──► tables ── shard_files ──► folder: events/date=2026-11-21/part-….parquet

`run` says what is to be written: days that are not closed, from behind what their files have; `source` asks the
journal for it. `lines` reads a query as fast as its database gives it; `forms` are the columns of the files;
`shard_files` are those that a query fills; `folder` makes each appear whole.
"""
