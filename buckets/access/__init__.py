"""Access: what all instances know of tokens, kept in Redis."""
