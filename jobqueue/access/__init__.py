"""Access: who may connect, and how much they may use."""
