"""The judges: `checker` reads a history and reports every broken invariant, by the rules of the other modules."""
