"""mykit-delay: jobs pushed as JSON over HTTP. docs/protocols/mykit.md is for its users."""
