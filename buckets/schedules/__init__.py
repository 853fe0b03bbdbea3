"""Schedules: names under which occurrences are made, again and again; each is an ordinary job, `<name>@<ms>`.

The record of a schedule is the truth; an entry in a bucket of its shard, `~<name>`, brings its timer to it. The timer's
script only reports that the time has come. Whoever learns of it computes the times, as a script cannot, and `occur.lua`
makes the occurrences and sets the next time in one move, if the record is still as it was read. So each is made once,
whoever else learned of it; should the process die, the entry is met again a second later.

The engine knows nothing of intervals and calendars: a `Planner` does.
"""
