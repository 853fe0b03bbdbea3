"""The transactional outbox: a table that the user's own transactions write to, and the relay that hands its rows to the
service.

`table` defines the table, `source` reads and settles its rows, `relay` hands them on.
"""
