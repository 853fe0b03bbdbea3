"""The commands of the journal, as they are typed."""
