"""The reference of the native protocol, made from the schema and the commands: Markdown and OpenAPI."""
