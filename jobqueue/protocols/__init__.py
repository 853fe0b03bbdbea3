"""The dialects that the service speaks; each is one file and knows nothing of the others."""
