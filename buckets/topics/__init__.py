"""Topics: their counts, pauses and purges, walks over their jobs, and conditions on their names."""
