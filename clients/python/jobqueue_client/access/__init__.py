"""What a client shows the service, and what it trusts: `options` takes the options, `token` and `tls` hold them."""
