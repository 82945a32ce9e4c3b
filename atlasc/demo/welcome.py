"""What ``atlasc serve --demo`` adds to a service: a front page, and tokens for visitors."""

from __future__ import annotations

import asyncio
import math
import re
import shlex
import time
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from atlasc.bundle.sent import UPLOAD
from atlasc.demo.invitation import Invitation
from atlasc.demo.visitors import JOBS, STAY, Visitors, tight
from atlasc.report.pages import page
from atlasc.service.edge.rates import Rates
from atlasc.service.faults import Refusal
from atlasc.service.jobs import Limits
from atlasc.service.programs import Programs
from atlasc.service.requests import Here, Service
from atlasc.targets import find_target

_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
FRESH, PAGES = 1.0, 8
"""Seconds for which a page is shown again, and pages that are kept: one for each name of the
service."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Demonstration:
    """The front of a service that anyone may try.

    Attributes:
        secure: whether visitors reach it by ``https``.
    """

    secure: bool

    def limits(self, limits: Limits, programs: Programs) -> Limits:
        """See :func:`atlasc.demo.visitors.tight`."""
        return tight(limits, programs)

    def router(self, service: Service) -> APIRouter:
        """The front page at ``/``, and ``POST /demo/visitors`` for a token; both need none.

        Raises:
            AtlasError: the disk has no room for a visitor.
        """
        visitors, router = Visitors(service), APIRouter()
        made: dict[str, tuple[float, str]] = {}
        renders, alone = Rates(5.0, who="all visitors"), asyncio.Lock()

        @router.get("/", response_class=HTMLResponse)
        async def front(service: Here, request: Request) -> HTMLResponse:
            host = request.headers.get("host", "")
            if not _HOST.fullmatch(host):
                raise Refusal(400, "the header Host is no name or address")
            url = f"{'https' if self.secure else 'http'}://{host}"
            # Anybody may ask, and a page takes a while: many at once would hold everybody up.
            async with alone:
                since, text = made.get(url, (-math.inf, ""))
                if time.monotonic() - since > FRESH:
                    renders.take("all")
                    text = await run_in_threadpool(welcome, service, visitors, url)
                    if len(made) >= PAGES:
                        made.clear()
                    made[url] = (time.monotonic(), text)
            return HTMLResponse(text, headers=HEADERS)

        @router.post("/demo/visitors", status_code=201)
        def invite(request: Request) -> Invitation:
            return visitors.welcome(request.client.host if request.client else "")

        return router


def welcome(service: Service, visitors: Visitors, url: str) -> str:
    """The front page.

    Args:
        url: address of the service, as the visitor's browser has it.
    """
    programs = list(service.programs.listed)
    several = len({one.model for one in programs}) > 1
    simulated = not all(find_target(one.bundle.target).encrypted for one in programs)
    words = ["atlasc", "demo", url, *(["--allow-simulation"] if simulated else [])]
    jobs = service.jobs
    return page(
        "welcome.html",
        title="Ask a model that cannot read your question",
        url=url,
        programs=[one.facts(jobs.seconds(one.program)) for one in programs],
        commands=[
            shlex.join([*words, *(["--model", one.model] if several else [])])
            for one in {one.model: one for one in programs}.values()
        ],
        visitors=len(visitors.here()),
        most=visitors.most,
        hours=STAY / 3600,
        jobs=JOBS,
        waiting=jobs.waiting(),
        wait=jobs.wait_seconds(),
        upload=UPLOAD,
        keep=jobs.limits.keep,
        simulated=simulated,
    )
