"""lmstfy: a task queue over HTTP, `/api/<namespace>/<queue>`. docs/protocols/lmstfy.md is for its users."""
