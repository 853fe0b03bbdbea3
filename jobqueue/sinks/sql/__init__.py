"""A table in the receiver's database: a message is confirmed by the commit of its row, whose key is there only once."""
