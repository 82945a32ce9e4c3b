"""``atlasc serve`` and ``atlasc tokens``: a service that answers queries of many tenants."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli.output import print_json, print_product, print_table, say, show, warn
from atlasc.cli.parameters import JSON, required
from atlasc.compilation.declared import choose, option, switch
from atlasc.compilation.options import worker_key
from atlasc.passes.lowering.keys.sizes import parse_size

if TYPE_CHECKING:
    from atlasc.service.workers.cluster import Cluster

STATE = required("Folder of the service: keys, jobs and tokens; serve and --add make a new one.")


def serve(
    bundles: Annotated[
        list[Path],
        typer.Argument(
            metavar="BUNDLE...", help="Bundles; of several versions of a model, the newest first."
        ),
    ],
    state: Path = STATE,
    host: str = option("Address to listen at.", default="127.0.0.1"),
    port: int = option("Port; 0 takes a free one.", default=8000, minimum=0),
    tls_cert: Path | None = option("Certificate chain, PEM."),
    tls_key: Path | None = option("Key of the certificate, PEM, readable by you alone."),
    plain_http: bool = switch("Serve other machines without TLS: a proxy in front has it."),
    proxy: str | None = option(
        "Addresses of proxies in front, with commas; their X-Forwarded-For is believed."
    ),
    workers: str = option(
        "Who computes: a process of this machine, or processes here or on a cluster. Programs on "
        "GPUs have a process for each GPU of this machine.",
        metavar="local|ray", default="local",
    ),
    worker_count: int | None = worker_key(
        "Number of workers.", key="count", minimum=1, unset="one for each machine"
    ),
    ray_address: str | None = worker_key(
        "HOST:PORT of a running Ray cluster.", key="address", unset="RAY_ADDRESS, else this machine"
    ),
    memory: int | None = option(
        "Memory for the loaded keys of a worker, such as 8G. On GPUs that of each GPU.",
        unset="half of what is free",
        parse=parse_size, metavar="SIZE",
    ),
    quota: int = option(
        "Disk of one tenant: keys, queries, answers.", default="20G", parse=parse_size,
        metavar="SIZE",
    ),
    queue: int = option("Jobs that may wait.", default=64, minimum=1),
    tenant_queue: int | None = option(
        "Jobs of one tenant that may wait.", minimum=1, unset="half of --queue"
    ),
    keep: float = option("Hours that an answer is kept.", default=24.0, minimum=0),
    keep_keys: float = option(
        "Days that keys are kept without a query; their client uploads them again.",
        default=90.0, minimum=0,
    ),
    rate: float = option("Requests a second of one tenant.", default=100.0, minimum=0.1),
    infer_timeout: float = option("Seconds that infer waits for its answer.", default=600.0),
    grace: float = option(
        "Seconds that jobs that run get after SIGTERM; then they are queued again.",
        default=30.0, minimum=0,
    ),
    server_part_alone: bool = switch(
        "Serve bundles without the client's part, which clients then need from elsewhere."
    ),
    demo: bool = switch(
        "For anyone to try: a front page, and for each visitor a token with tight limits, for two "
        "hours."
    ),
) -> None:  # fmt: skip
    """Answer encrypted queries over HTTP: keys, queue, tenants, metrics.

    The service has no secret key, and does not start where one lies in its folders. Every request
    but the health checks needs a token (atlasc tokens). It ends after SIGTERM or Ctrl-C with exit
    code 0; jobs that are not answered then are answered after the next start.
    """
    _require_extra()
    from atlasc.bundle.kept import OWNER
    from atlasc.service.jobs import Limits
    from atlasc.service.serve import Settings, serve

    for folder in bundles:
        if (folder / OWNER).is_dir():
            warn(
                f"{folder / OWNER} holds inputs of calibration in the clear",
                "  why: compile keeps some with the model's answers, for whoever owns the program\n"
                "  what to do: remove it where others read this machine; no service needs it",
            )

    half = max(1, queue // 2)
    limits = Limits(queue, half if tenant_queue is None else tenant_queue, quota, keep * 3600)
    settings = Settings(
        state, host, port, limits, tls_cert, tls_key, plain_http, _proxies(proxy), memory, rate,
        infer_timeout, grace, _cluster(workers, worker_count, ray_address), keep_keys * 86400,
        server_part_alone,
    )  # fmt: skip
    front = None
    if demo:
        from atlasc.demo.welcome import Demonstration

        front = Demonstration(secure=tls_cert is not None or plain_http)
    serve(bundles, settings, lambda url: print(f"serving at {url}", flush=True), front)


def tokens(
    state: Path = STATE,
    add: str | None = option("Make a token for this tenant, and print it once.", metavar="TENANT"),
    revoke: str | None = option("End a token, by its id.", metavar="ID"),
    remove: str | None = option(
        "Remove a tenant: tokens, keys and jobs, also those that run.", metavar="TENANT"
    ),
    scopes: str = option("What the new token allows: infer, keys, metrics.", default="infer,keys"),
    days: float | None = option("Days after which the new token ends.", minimum=0),
    as_json: bool = JSON,
) -> None:
    """List, make, revoke or remove the tokens of a service, also while it runs.

    Only digests are kept: a token that is lost is revoked, and replaced by a new one.
    """
    from atlasc.ir.errors import AtlasError, counted
    from atlasc.service.records.audit import operator
    from atlasc.service.records.housekeeping import remove_tenant
    from atlasc.service.store import Store
    from atlasc.service.tokens import add_token, all_tokens, revoke_token

    if sum(one is not None for one in (add, revoke, remove)) > 1:
        raise AtlasError(
            "--add, --revoke and --remove exclude each other", remedy="give one of them"
        )
    store = Store(state, make=add is not None)
    try:
        if add is not None:
            token = add_token(store, add, [one.strip() for one in scopes.split(",")], days)
            if as_json:
                print_json({"tenant": add, "token": token})
            else:
                print_product(token)
                show("note", "this token is shown once; give it to the tenant over a safe channel")
            return
        if revoke is not None:
            revoke_token(store, revoke)
        if remove is not None:
            had = remove_tenant(store, remove, operator())
            say(f"removed {remove}: {counted(had.keys, 'set', 'sets')} of keys, "
                f"{counted(had.jobs, 'job', 'jobs')}")  # fmt: skip
        found = all_tokens(store)
    finally:
        store.close()
    if as_json:
        names = ("id", "tenant", "scopes", "state", "created", "expires", "revoked")
        print_json({"tokens": [{name: getattr(t, name) for name in names} for t in found]})
    elif found:
        rows = [[t.id, t.tenant, ", ".join(t.scopes), t.state, _day(t.expires)] for t in found]
        print_table(["id", "tenant", "scopes", "state", "expires"], rows)
    else:
        say("no tokens; --add TENANT makes one")


def keys(
    action: Annotated[str, typer.Argument(metavar="list|prune", help="What to do.")],
    state: Path = STATE,
    bundles: list[Path] = option(
        "Programs that are served; prune keys of all others.", "--program", default=(),
        metavar="BUNDLE", unset="none",
    ),
    unused: float | None = option("Prune keys that had no query for so many days.", minimum=0),
    dry_run: bool = switch("Say what would be pruned, and remove nothing."),
    as_json: bool = JSON,
) -> None:  # fmt: skip
    """List what lies on a service's disk by tenant, or remove unused keys.

    Pruned are keys of tenants without a valid token, and uploads that stopped a day ago;
    with --program also keys for other programs, with --unused keys without a query. A client whose
    keys are gone uploads them again. Keys that a job needs stay. The service may run.
    """
    from atlasc.service.programs import configuration_for
    from atlasc.service.records import housekeeping
    from atlasc.service.records.audit import operator
    from atlasc.service.store import Store

    pruning = choose("list|prune", action, ("list", "prune")) == "prune"
    wanted = frozenset(map(configuration_for, bundles)) if bundles else None
    rules = housekeeping.Rules(None if unused is None else unused * 86400, True, wanted)
    store = Store(state, make=False)
    try:
        found: list[tuple[housekeeping.KeyFacts, str]]
        if pruning:
            found = housekeeping.prune(store, rules, operator(), dry=dry_run)
        else:
            found = [(key, "") for key in housekeeping.all_keys(store)]
        tenants = housekeeping.disk(store)
    finally:
        store.close()
    if as_json:
        print_json({
            "keys": [{**asdict(key), "why": why} for key, why in found],
            "tenants": [asdict(one) for one in tenants],
        })  # fmt: skip
        return
    rows = [
        [key.tenant, key.id[:16], key.size >> 20, _day(key.created), _day(key.used),
         why or ("" if key.ready else f"{key.received >> 20} MiB are here")]
        for key, why in found
    ]  # fmt: skip
    title = "would be pruned" if pruning and dry_run else "pruned" if pruning else "keys"
    print_table(["tenant", "keys", "MiB", "sent", "used", "why"], rows, title=title)
    if not pruning:
        print_table(
            ["tenant", "valid tokens", "keys", "MiB", "jobs", "MiB of jobs"],
            [[one.tenant, one.tokens, one.keys, one.key_bytes >> 20, one.jobs, one.job_bytes >> 20]
             for one in tenants],
            title="disk",
        )  # fmt: skip


def _day(seconds: float | None) -> str | None:
    import time

    return None if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _proxies(text: str | None) -> tuple[str, ...]:
    import ipaddress

    from atlasc.ir.errors import AtlasError

    found = [one.strip() for one in (text or "").split(",") if one.strip()]
    try:
        return tuple(str(ipaddress.ip_address(one)) for one in found)
    except ValueError as error:
        raise AtlasError(f"--proxy: {error}", remedy="write it as 10.0.0.2,10.0.0.3") from None


def _cluster(workers: str, count: int | None, address: str | None) -> Cluster | None:
    from atlasc.ir.errors import AtlasError
    from atlasc.service.workers.cluster import Cluster

    if choose("--workers", workers, ("local", "ray")) == "ray":
        return Cluster(address, count)
    for name, value in (("count", count), ("address", address)):
        if value is not None:
            raise AtlasError(
                f"{name} of --workers needs --workers ray",
                remedy="add --workers ray, or leave it out",
            )
    return None


def _require_extra() -> None:
    from importlib.util import find_spec

    from atlasc.ir.errors import AtlasError

    missing = [
        n for n in ("fastapi", "uvicorn", "prometheus_client", "jinja2") if find_spec(n) is None
    ]
    if missing:
        raise AtlasError(
            f"the library {missing[0]} is not installed",
            why="a service is made of fastapi, uvicorn, prometheus-client and jinja2",
            remedy="pip install 'WHEEL[serve]', with the path of atlasc's wheel or clone for WHEEL",
        )
