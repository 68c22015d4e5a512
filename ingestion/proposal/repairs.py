"""For each finding that a spec can release: what to write, on which evidence, and how sure that is.

A repair that the file does not show is a ``guess``: it is said, and never part of what a proposal applies.
"""

from __future__ import annotations

from ingestion.preflight.inspection import Inspection
from ingestion.proposal.proposed import Proposed
from ingestion.proposal.repair_geometry import GEOMETRY, unfound
from ingestion.proposal.repair_layout import LAYOUT, rescued, way_of
from ingestion.proposal.repair_samples import FORMAT, SAMPLES
from ingestion.proposal.rescue import is_regular


def proposals(found: Inspection) -> list[Proposed]:
    """What would release the most basic of the findings; empty when nothing can be said.

    Samples in a wrong format look broken in other ways too, and wrong line numbers make geometry wrong: so what
    comes first is repaired first, and the survey is judged again.
    """
    held = [finding for finding in found.findings if finding.severity == "hold"]
    codes = {finding.code for finding in held}
    if "byte-order-mixed" in codes:  # which no spec can say, and which makes everything else look wrong
        return []
    irregular = bool(held) and found.traces is not None and not is_regular(found.sources[0], way_of(found))
    if irregular and (said := rescued(found, held[0])):
        return said
    for group in (LAYOUT, FORMAT, GEOMETRY | SAMPLES) if found.traces is not None else (LAYOUT,):
        said = [
            proposed for finding in held if finding.code in group for proposed in group[finding.code](found, finding)
        ]
        if said:
            return said
    return [] if found.held else unfound(found)
