"""Schedules: a schedule has a name and creates occurrences again and again; each is an ordinary job, `<name>@<ms>`.

The record of a schedule is the truth; an entry in a bucket of its shard, `~<name>`, makes the bucket's timer notice it.
The timer's script only reports that the time has come. The process of the timer computes the times, which a script
cannot, and `occur.lua` creates the occurrences and sets the next time in one move, if the record is still as it was
read. So each occurrence is created once, even if several processes try; if the process dies, a timer meets the entry
again a second later.

The engine knows nothing of intervals and calendars: a `Planner` does.
"""
