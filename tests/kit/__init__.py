"""What tests start, kill, freeze and cut off, and how they wait."""
