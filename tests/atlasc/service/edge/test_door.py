"""The parts that bound what others cost, without a service: places, rates, lines and counts."""

from __future__ import annotations

import asyncio.sslproto
import logging
import secrets
import socket
import sys
import time
from typing import Any

import pytest

from atlasc.service.edge import door as doors
from atlasc.service.edge.door import Door, Held, Place, address_of
from atlasc.service.edge.rates import MOST, Rates
from atlasc.service.faults import Refusal
from atlasc.service.serve import SWITCH_SECONDS, TLS_BUFFER, short_turns, small_tls_buffers
from atlasc.service.telemetry import BUDGETS, Budgets


def test_a_flood_is_a_few_lines_that_count_the_others() -> None:
    budgets, shown, hidden = Budgets(), 0, 0
    for number in range(10_000):
        record = logging.LogRecord("atlasc.service", logging.INFO, "", 0, "request", None, None)
        record.budget, record.facts, record.created = "strangers", {}, time.time() + number / 1000
        if budgets.filter(record):
            shown += 1
            hidden += record.facts.get("not_shown", 0)
    rate, burst = BUDGETS["strangers"]
    assert burst < shown <= burst + 10 * rate + 1
    assert hidden > 9000
    record.budget = ""  # what the service says of itself is always shown
    assert budgets.filter(record)


def test_names_of_keys_leave_nothing_in_memory(inside: Any) -> None:
    uploads, before = inside.uploads, len(inside.uploads._locks)
    for _ in range(1000):
        with pytest.raises(Refusal, match="no such keys"):
            uploads.add("acme", secrets.token_hex(32), 0, b"x", b"")
        with pytest.raises(Refusal, match="no such keys"):
            uploads.delete("acme", secrets.token_hex(32))
    assert len(uploads._locks) == before
    rates = Rates(10.0)
    for number in range(2 * MOST):
        rates.take(f"tenant-{number}")
    assert len(rates._left) <= MOST
    for _ in range(10):
        with inside.at_once("infer", "acme"):
            pass
    assert not inside._now


def held(door: Door, host: str) -> Held | None:
    """A connection that was admitted; None if it was not."""
    return door.admit(host, lambda: Held(socket.AF_INET, socket.SOCK_STREAM))


def test_places_are_taken_back_from_who_waits_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "PLACES", 4)
    monkeypatch.setattr(doors, "SPARE", 1)
    door = Door()
    idle, working, tenant, busy = (asks(place(door, f"192.0.2.{n}")) for n in range(4))
    working.set(10, busy=True)  # a stranger's request: an answer that nobody takes, perhaps
    tenant.known = True
    busy.admit()
    for one in (idle, working):
        one.since -= 2 * doors.RECENT
    order = []
    for _ in range(3):
        before = set(door.places.values())
        asks(place(door, "192.0.2.9")).admit()
        order += before - set(door.places.values())
    assert order == [idle, working, tenant]
    spare = place(door, "192.0.2.9")
    assert spare.spare and len(door.places) == 5  # for health alone
    assert place(door, "192.0.2.9").spare and spare not in door.places.values()
    spare = next(one for one in door.places.values() if one.spare)
    spare.admit()
    assert held(door, "192.0.2.9") is None
    for one in [*door.places.values(), *order]:
        one.held.close()
    assert not door.places


def test_a_new_connection_has_time_to_ask_before_others_push_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doors, "PLACES", 4)
    monkeypatch.setattr(doors, "NEW", 3)
    door = Door()
    idle = [place(door, "192.0.2.1") for _ in range(4)]
    for one in idle:  # tenants that wait between two requests
        asks(one).known = True
        one.since -= 2 * doors.RECENT
    health = asks(place(door, "192.0.2.2"))  # it waits for its answer
    for _ in range(2):
        place(door, "192.0.2.3")
    assert health in door.places.values()  # so tenants cannot take the places of new ones
    place(door, "192.0.2.3")
    assert health not in door.places.values()  # NEW strangers are new: the one that waits longest
    for one in door.places.values():
        asks(one).admit()
    assert place(door, "192.0.2.2").spare  # all others are busy


def test_places_of_an_address_are_counted_as_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "SHARE", 2)
    door = Door()
    for _ in range(3):
        taken = [place(door, "192.0.2.1") for _ in range(5)]
        assert [one in door.places.values() for one in taken] == [False] * 3 + [True] * 2
        for one in taken:
            one.held.close()
        assert not door.places
    assert not door._of and not door._spare


def place(door: Door, host: str) -> Place:
    """The place of a connection that must be admitted."""
    found = held(door, host)
    assert found is not None and found.place is not None
    return found.place


def asks(one: Place) -> Place:
    """A connection over which a request has come."""
    one.held.left = None
    return one


def test_one_address_has_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "SHARE", 2)
    door = Door(trusted=frozenset(["10.0.0.1"]))
    mine = [held(door, "2001:db8::" + str(n)) for n in range(4)]  # one network of 64 bits
    assert len(door.places) == 2 and all(mine)
    for one in door.places.values():
        one.admit()
    assert held(door, "2001:db8::9") is None
    assert held(door, "2001:db8:0:1::9") is not None  # a neighbour
    for host in ("10.0.0.1", "127.0.0.1"):  # a proxy, and this machine
        assert all(held(door, host) for _ in range(300))
    assert (
        address_of("::ffff:192.0.2.7") == "192.0.2.7" and address_of("no address") == "no address"
    )


def test_new_connections_of_one_address_have_a_rate() -> None:
    door = Door()
    admitted = [one for _ in range(300) if (one := held(door, "192.0.2.1"))]
    assert doors.BURST <= len(admitted) < doors.BURST + 50
    assert held(door, "192.0.2.2") is not None


def test_what_is_no_address_is_short() -> None:
    """A proxy may pass on what a stranger says."""
    assert len(doors.address_of("x" * 10_000)) <= doors.MOST_NAME
    assert doors.address_of("::ffff:192.0.2.1%eth0") == "192.0.2.1"


def test_the_size_of_buffers_lasts_as_long_as_the_service() -> None:
    """It is one of the whole process, which may have connections of its own."""
    protocol: Any = asyncio.sslproto.SSLProtocol
    before = protocol.max_size
    with small_tls_buffers():
        assert protocol.max_size == TLS_BUFFER
    assert protocol.max_size == before != TLS_BUFFER


def test_short_turns_last_as_long_as_the_service() -> None:
    before = sys.getswitchinterval()
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() == before != SWITCH_SECONDS
