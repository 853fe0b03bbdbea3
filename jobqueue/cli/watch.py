"""The figures of topics, shown once or repeatedly, with rates per second between two looks."""

from __future__ import annotations

import asyncio
import time

from jobqueue.cli.ask import DONE, Extras, Fields, is_empty, listing_pages, once
from jobqueue.cli.client import Answer, Client, Refusal, Unreachable
from jobqueue.cli.output import Output

_SHORTEST_S = 0.1  # between two looks
_MOST_TOPICS = 12  # beside the figures of all
_RATED = ("created", "delivered", "finished")


class Pace:
    """Rates per second, from the totals of two looks."""

    def __init__(self) -> None:
        self._last: tuple[float, dict[str, int]] | None = None

    def rates(self, totals: dict[str, int], now: float) -> dict[str, float]:
        """The rates since the last look, or an empty dict at the first look."""
        last, self._last = self._last, (now, totals)
        if last is None or now <= last[0]:
            return {}
        return {name: (totals.get(name, 0) - last[1].get(name, 0)) / (now - last[0]) for name in _RATED}


async def stats(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show the figures of a topic or of all topics, and return the exit code."""
    if extras.watch is None and out.as_json:
        return await once("stats")(client, fields, extras, out)
    answer = await client.ask("stats", **fields)
    if extras.watch is None:
        out.table("stats", answer.fields)
        return DONE
    look = _stream if out.as_json else _draw
    await look(client, fields, max(extras.watch, _SHORTEST_S), out, answer)
    return DONE


async def _stream(client: Client, fields: Fields, pause_s: float, out: Output, answer: Answer) -> None:
    """Print one line per look, until Ctrl-C."""
    while True:
        out.json(answer)
        await asyncio.sleep(pause_s)
        answer = await client.ask("stats", **fields)


async def _listed(client: Client, fields: Fields) -> list[Fields]:
    """The topics to show beside the figures of all topics."""
    if "topic" in fields:
        return []
    pages = [page.fields["topics"] async for page in listing_pages(client, "topics", {})]
    return [topic for page in pages for topic in page if not is_empty(topic)]


async def _draw(client: Client, fields: Fields, pause_s: float, out: Output, answer: Answer) -> None:
    """Redraw the tables until Ctrl-C. While the service is away, keep its last figures and wait for it."""
    from rich.console import Group  # noqa: PLC0415 - a script in a pipe does not wait for rich to load
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from jobqueue.cli import tables  # noqa: PLC0415

    pace, trouble = Pace(), ""
    listed = await _listed(client, fields)
    with Live(console=out.console, auto_refresh=False) as live:
        while True:
            if not trouble:
                drawn = tables.stats(answer.fields, pace.rates(answer.fields["totals"], time.monotonic()))
                if listed:
                    drawn = Group(tables.topics(listed, _MOST_TOPICS), drawn)
            # Above the tables: a small terminal cuts off the bottom.
            head = trouble or f"{time.strftime('%H:%M:%S')}, every {pause_s:g} s; Ctrl-C ends"
            live.update(Group(Text(head, style="red" if trouble else "dim"), drawn), refresh=True)
            await asyncio.sleep(pause_s)
            try:
                answer, listed, trouble = await client.ask("stats", **fields), await _listed(client, fields), ""
            except (Refusal, Unreachable) as error:
                trouble = str(error)
