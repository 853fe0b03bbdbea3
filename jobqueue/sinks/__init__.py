"""Where due jobs go by themselves. Each sink is a folder and knows nothing of the others."""
