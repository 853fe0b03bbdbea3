"""The reader of the events: each shard's stream, from Redis into SQL, each event once and in order.

running    a process: locks, a loop for each shard, signals
shard      the loop of a shard: pending entries, fresh ones, one transaction a batch, then their acknowledgement
verdict    what a stream says about its position: all is well, entries are lost, Redis went back
entries    entries of the stream, and writing them: halved until what a database refuses is alone
walk       all records of a shard, for what its events do not tell
tokens     the records of tokens, with shard 0
"""
