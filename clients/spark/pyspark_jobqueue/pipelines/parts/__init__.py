"""What the pipelines are made of.

All of them use `command_line`: the common flags, how a run ends, and its report. Rows in: `inputs`, `increment`,
`events`, `micro_batch`. Rows to jobs: `jobs`. Looking at the queue: `comparison`, `histogram`. Looking back: `history`,
`lives`. Drawings: `charts`.
"""
