"""What the pipelines are made of.

All of them use `flags` (the common flags, and how a run ends) and `report`. Rows in: `inputs`, `increment` (with its
`watermark_file`), `events`, `folding`, `micro_batch`. Rows to jobs: `expressions`, `jobs`, `callback`, `writes`.
Looking at the queue: `lookup`, `comparison`, `histogram`, `backlog`. Looking back: `history`, `lives`, `past`. Charts:
`plotting`, `axes`, `chart`, `lateness_chart`.
"""
