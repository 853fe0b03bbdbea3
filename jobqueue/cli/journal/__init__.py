"""The commands about the journal, and what they do."""
