"""Tokens that a client takes for valid ones. Another program than the clients made their checksums."""

TOKEN = "jqt_orders01Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9x3PwsY5"  # noqa: S105  # of no service
NEWER_TOKEN = "jqt_00000002sssssssssssssssssssssssssssssssssssssssssss0YwW25"  # noqa: S105
WRONG_TOKEN = f"{TOKEN[:-1]}6"
"""With a typing error in its checksum."""
