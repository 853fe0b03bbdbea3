"""What a request may show that opens nothing: tokens that are wrong in each way."""

from __future__ import annotations

import time

from jobqueue.access.issuing import Issued
from jobqueue.access.tokens import Token
from tests.kit.guarded import Guarded
from tests.kit.waiting import until

KINDS = (
    "nothing",
    "an unknown token",
    "a known id with another secret",
    "a mistyped token",
    "a token that is cut off",
    "an expired token",
    "a revoked token",
    "the secret before the last exchange",
)
_LIFE_S = 1.5


class Credentials:
    """Tokens by what is the matter with them."""

    def __init__(self, valid: Issued, texts: dict[str, str | None]) -> None:
        self.valid = valid
        self.texts = texts
        """By the words of KINDS; None: there is none."""

    def header(self, kind: str) -> dict[str, str]:
        """The header that shows one."""
        text = self.texts[kind]
        return {} if text is None else {"Authorization": f"Bearer {text}"}


async def credentials(guarded: Guarded) -> Credentials:
    """Tokens that all had all rights, as long as they held."""
    valid = await guarded.token("admin")
    text = valid.token.text
    short = await guarded.token("admin", expires=time.time() + _LIFE_S)
    revoked = await guarded.token("admin")
    await guarded.issuing.revoke(revoked.record.id)
    before = await guarded.token("admin")
    await guarded.until_known(await guarded.issuing.rotate(before.record.id))
    mistyped = text[:-1] + ("x" if text[-1] != "x" else "y")
    ends = [short.token.text, revoked.token.text, before.token.text]
    for url in [service.url for service in guarded.services]:
        for issued in (short, revoked, before):
            await _until_ended(guarded, issued, url)
    others = [Token.make().text, Token.make(valid.record.id).text, mistyped, text[:-1]]
    return Credentials(valid, dict(zip(KINDS, [None, *others, *ends], strict=True)))


async def _until_ended(guarded: Guarded, issued: Issued, url: str) -> None:
    async def ended() -> bool:
        return (await guarded.ask(issued, {"command": "whoami"}, url))[0] == 401

    await until(ended)
