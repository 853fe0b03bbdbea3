"""Changes that are to be safer than the memory of one Redis: replicated, or fsynced."""
