"""What all pages share: the template of a page, and the page of an evaluation.

Each page is one file that needs no script, font or picture from elsewhere. The templates are in the
folder beside this file. Every value in a page is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atlasc.report.charts import shape
from atlasc.report.words import duration, gib, mib, percent, share, shown
from atlasc.simulation.confusion import Confusion
from atlasc.templates import templates


def page(name: str, **facts: Any) -> str:
    """A page from the template ``name`` and the values that it shows."""
    environment = templates("atlasc.report", autoescape=True, finalize=shown)
    environment.filters |= {"duration": duration, "gib": gib, "mib": mib, "percent": percent}
    environment.globals |= {"share": share, "shape": shape}
    return environment.get_template(f"{name}.jinja").render(facts)


def evaluation_html(
    found: Mapping[str, Any], meanings: Mapping[str, str], confusion: Confusion | None = None
) -> str:
    """The page of an evaluation.

    Args:
        found: the evaluation as JSON values.
        meanings: stage -> its description.
        confusion: which classes are taken for which, if that is known.
    """
    return page(
        "evaluation.html",
        title=f"{found['program']} on {found['inputs']} inputs",
        found=found,
        meanings=meanings,
        confusion=confusion,
        groups=[
            ("unsafe", found["unsafe"]),
            ("undecided", found["undecided"]),
            ("left out", found["left_out"]),
            ("without a usable label", found["unlabelled"]),
        ],
    )
