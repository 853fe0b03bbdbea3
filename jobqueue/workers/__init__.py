"""The processes that answer on one port: a supervisor starts them, starts them again, and stops them."""
