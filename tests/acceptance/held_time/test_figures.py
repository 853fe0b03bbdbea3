"""Figures of a test service: they are up to the moment, and go by its clock."""

from __future__ import annotations

from tests.kit.service import Client, ServiceProcess


async def test_what_happens_is_told_at_once_and_in_the_minute_of_the_held_clock() -> None:
    async with ServiceProcess("--test", workers=None) as service, Client(service.url) as client:
        begun = (await client.ask("clock", advance=0))["now"]
        await client.ask("add", topic="t", id="a", body=1, delay=600)
        assert (await client.ask("figures"))["total"]["adds"] == 1
        await client.ask("clock", advance=600)
        await client.ask("finish", id=(await client.ask("pop", topic="t"))["id"])
        await client.ask("clock", advance=120)
        answer = await client.ask("figures", topic="t")
        assert [(each["begin"], each["adds"], each["finishes"]) for each in answer["bins"]] == [
            (begun // 60 * 60, 1, 0),
            ((begun + 600) // 60 * 60, 0, 1),
        ]
        await client.ask("clock", advance=2 * 3600)
        assert (await client.ask("figures", topic="t"))["bins"] == []
        assert (await client.ask("figures", since=begun))["total"]["finishes"] == 1
        await client.ask("reset")
        assert (await client.ask("figures"))["bins"] == []
