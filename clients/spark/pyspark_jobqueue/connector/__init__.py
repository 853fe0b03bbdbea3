"""What `format("jobqueue")` is made of: `source` is what Spark finds, `reader` and `writer` what it asks for.

A read: `read_options` and `read_schema` say what to fetch; `answer_batches` turns the answers of `service` into Arrow.
A history comes from the database of a `journal` instead (`history`).

A write: `columns` and `write_options` check the query on the driver. In each task, `write_task` takes the rows
(`row_batches`), makes them `commands`, sends those as `ordered_requests` within the `rate_limit`, sets `refused_rows`
aside, and counts into `write_totals`.
"""
