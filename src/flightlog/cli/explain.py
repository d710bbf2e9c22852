"""Explains a manifest in words: what would run where, what an overlay changes, and where each value
comes from.

    flightlog explain
    flightlog explain --target cluster

Every value is listed as it was written, with its line, the overlay it came from, and whether the variables in
it are set; what they hold is not shown.
"""

from __future__ import annotations

import os

from flightlog.cli.options import ManifestFile, TargetName, note_unset, problems_noted
from flightlog.cli.output import put, text_options


def explain(manifest: ManifestFile = None, target: TargetName = None) -> None:
    """Show what a manifest means, and where values come from.

    Example: flightlog explain --target cluster
    """
    from flightlog.session.manifest import load_manifest, pick_target
    from flightlog.session.plan import explain as explained
    from flightlog.session.plan import make_plan
    from flightlog.show.plan import explanation_text

    with problems_noted():
        found = load_manifest(manifest)
        chosen = pick_target(found, target)
        plan = make_plan(found, chosen, os.environ)
    note_unset(found, chosen)
    why = explained(found, chosen, os.environ)
    put(explanation_text(plan, why, **text_options()))
