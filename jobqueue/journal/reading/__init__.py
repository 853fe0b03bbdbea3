"""The reader of the events: copies each shard's stream from Redis into SQL, each event once and in order.

running    a process: locks, a loop for each shard, signals
shard      the loop of a shard: pending entries, then fresh ones; one transaction per batch, then its acknowledgement
verdict    compares a stream with its position: all is well, entries are lost, or Redis went back
entries    entries of the stream, and writing them: a batch is halved until what a database refuses is alone
walk       reads all records of a shard, for what its events do not show
tokens     reads the records of tokens, together with shard 0
"""
