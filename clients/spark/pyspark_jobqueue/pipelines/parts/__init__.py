"""The code that the pipelines share.

All pipelines use `command_line`: the common flags, how a run ends, and its report. Reading rows: `inputs`, `increment`,
`events`, `micro_batch`. Turning rows into jobs: `jobs`. Inspecting the queue: `comparison`, `histogram`. Reading the
history: `history`, `lives`. Drawing: `charts`.
"""
