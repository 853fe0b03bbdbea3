"""The headers of Standard Webhooks, checked by its own library."""

from __future__ import annotations

import base64
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from jobqueue.sinks.webhook import signature

OLD, NEW = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
BODY = '{"ordér":1}'.encode()


def test_each_secret_signs_so_that_old_and_new_ones_verify() -> None:
    headers = signature.headers("order:1", int(time.time()), BODY, signature.secrets_of(f"{NEW} {OLD}\n"))
    assert headers["webhook-id"] == "order:1"
    for secret in (NEW, OLD):
        assert Webhook(secret).verify(BODY, headers) == {"ordér": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY + b" ", headers)
    newest, _ = headers["webhook-signature"].split()
    Webhook(NEW).verify(BODY, headers | {"webhook-signature": newest})


def test_without_a_secret_id_and_time_go_but_no_signature() -> None:
    assert signature.headers("a", 1795262296, b"", []) == {"webhook-id": "a", "webhook-timestamp": "1795262296"}


def test_an_id_with_the_separator_of_the_signed_text_cannot_be_taken_apart_otherwise() -> None:
    keys = signature.secrets_of(OLD)
    one = signature.headers("a.1795262296", 1795262297, b"5", keys)
    other = signature.headers("a", 1795262296, b"1795262297.5", keys)
    assert one["webhook-id"] == "a%2E1795262296"
    assert one["webhook-signature"] != other["webhook-signature"]


@pytest.mark.parametrize("size", [24, 64])
def test_a_secret_has_24_to_64_bytes_with_or_without_its_padding(size: int) -> None:
    key = bytes(range(size))
    text = "whsec_" + base64.b64encode(key).decode()
    assert signature.secrets_of(f"{text} {text.rstrip('=')}") == [key, key]


SECRET = base64.b64encode(b"h" * 32).decode()


@pytest.mark.parametrize(
    "bad",
    [
        *(SECRET, f"whsk_{SECRET}", "whsec_", "whsec_" + "ä" * 40, f"whsec_{SECRET[:30]}", f"whsec_!{SECRET}"),
        *(f"whsec_{SECRET},whsec_{SECRET}", "whsec_" + base64.b64encode(b"h" * 65).decode(), f"whsec_{SECRET}A"),
    ],
)
def test_a_bad_secret_is_refused_by_its_place_and_not_shown(bad: str) -> None:
    with pytest.raises(ValueError, match="must be whsec_ and 24 to 64 bytes in base64") as told:
        signature.secrets_of(f"{OLD} {bad}")
    assert str(told.value).startswith("secret 2 ")
    assert SECRET[:16] not in str(told.value)


def test_no_secret_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="it contains no secret"):
        signature.secrets_of(" \n")
