"""Great Expectations, run over the tables of one survey: failed expectations become findings, results become pages."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ingestion.manifest import Finding, Manifest
from validation.rules import Rule, Suites, Table

_EXAMPLES = 5
_SEVERITY = {"hold": "critical", "warn": "warning"}  # in the words of Great Expectations


class Session:
    """The checks of one survey, whose Data Docs always get the same names."""

    def __init__(self, suites: Suites, manifest: Manifest) -> None:
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
        import great_expectations as gx  # ten seconds, so not before it is needed

        self.suites = suites
        self._gx = gx
        self._run_id = gx.RunIdentifier(run_name=run_name(manifest), run_time=manifest.created)
        self._context = gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = {"globally": False}
        self._source = self._context.data_sources.add_pandas("published")

    def check(self, name: str, frame: pd.DataFrame) -> list[Finding]:
        """Findings on one table, in the order of its expectations.

        Raises ``RuntimeError`` when an expectation could not be evaluated, which is a fault of the suite and not
        of the survey.
        """
        table = self.suites.tables[name]
        context, gx = self._context, self._gx
        suite = context.suites.add(
            gx.ExpectationSuite(name=name, expectations=[self._expectation(rule) for rule in table.expectations])
        )
        batch = self._source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all rows")
        definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
        checkpoint = gx.Checkpoint(
            name=name,
            validation_definitions=[definition],
            result_format={
                "result_format": "SUMMARY",
                "partial_unexpected_count": _EXAMPLES,
                "unexpected_index_column_names": table.identity or None,
            },
        )
        outcome = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame}, run_id=self._run_id)
        (results,) = outcome.run_results.values()
        return _findings(table, results.results)

    def write_pages(self, folder: Path) -> None:
        """Write all results so far as Data Docs into ``folder``."""
        for site in self._context.get_site_names():
            self._context.delete_data_docs_site(site)
        store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)}
        self._context.add_data_docs_site("pages", {"class_name": "SiteBuilder", "store_backend": store})
        self._context.build_data_docs()

    def _expectation(self, rule: Rule) -> Any:
        import great_expectations.expectations as gxe

        expectation = getattr(gxe, rule.expectation)
        described = f"{rule.code}: {rule.expected}"
        return expectation(
            **rule.arguments, meta={"code": rule.code}, severity=_SEVERITY[rule.severity], description=described
        )


def run_name(manifest: Manifest) -> str:
    """What the results on one digest are called."""
    return f"{manifest.survey}-{manifest.digest[:12]}"


def _findings(table: Table, results: Sequence[Any]) -> list[Finding]:
    by_code = {result.expectation_config.meta["code"]: result for result in results}
    found = []
    for rule in table.expectations:
        result = by_code[rule.code]
        if result.success:
            continue
        if not result.result:
            raise RuntimeError(f"expectation {rule.code} could not be evaluated: {result.exception_info}")
        found.append(_finding(rule, table, result.result))
    return found


def _finding(rule: Rule, table: Table, result: Mapping[str, Any]) -> Finding:
    values = result["partial_unexpected_list"]
    facts = {
        "count": f"{result['unexpected_count']:,}",
        "total": f"{result['element_count'] - result['missing_count']:,}",
        "value": _text(values[0]),
    }
    rows = result.get("partial_unexpected_index_list") or []
    return Finding(
        code=rule.code,
        severity=rule.severity,
        found=rule.found.format_map(facts),
        expected=rule.expected,
        release=rule.release,
        examples=[", ".join(f"{column} {_text(row[column])}" for column in table.identity) for row in rows[:_EXAMPLES]],
    )


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " and ".join(map(_text, value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return (
        f"{number:.0f}" if math.isfinite(number) and number == round(number) and abs(number) < 1e15 else f"{number:.4g}"
    )
