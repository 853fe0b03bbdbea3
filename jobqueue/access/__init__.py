"""Who may come, and how much they may take."""
