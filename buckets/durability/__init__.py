"""Changes that survive the loss of a Redis: replicated or fsynced, with the durability that each one reached."""
