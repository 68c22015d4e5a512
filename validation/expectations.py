"""Great Expectations, run over the tables of one survey: failed expectations become findings, results become pages."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ingestion.manifest import Finding, Manifest
from validation.rules import Rule, Suites, Table
from validation.tally import EXAMPLES, Count, Tally

_SHORT_TABLE = 1000  # rows
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
        results = self._run(name, frame, table.identity, [self._expectation(rule) for rule in table.expectations])
        failed = [(rule, results[rule.code]) for rule in table.expectations if rule.code in results]
        return [_finding(rule, table, result, frame) for rule, result in failed]

    def check_counts(self, name: str, tally: Tally) -> list[Finding]:
        """The same findings on a table that was counted line by line, of which only the counts are expected to be 0."""
        table, frame = self.suites.tables[name], tally.frame()
        results = self._run(name, frame, table.identity[:1], [self._none_of(rule) for rule in table.expectations])
        return [_counted(rule, tally.counts[rule.code]) for rule in table.expectations if rule.code in results]

    def _run(
        self, name: str, frame: pd.DataFrame, identity: Sequence[str], expectations: Sequence[Any]
    ) -> dict[str, Mapping[str, Any]]:
        """What Great Expectations says of those expectations that failed, by code."""
        context, gx = self._context, self._gx
        suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=list(expectations)))
        batch = self._source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all rows")
        definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
        checkpoint = gx.Checkpoint(
            name=name,
            validation_definitions=[definition],
            result_format={
                "result_format": "SUMMARY",
                "partial_unexpected_count": EXAMPLES,
                "unexpected_index_column_names": list(identity) or None,
            },
        )
        outcome = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame}, run_id=self._run_id)
        (results,) = outcome.run_results.values()
        failed = {r.expectation_config.meta["code"]: r for r in results.results if not r.success}
        for code, result in failed.items():
            if not result.result:
                raise RuntimeError(f"expectation {code} could not be evaluated: {result.exception_info}")
        return {code: result.result for code, result in failed.items()}

    def write_pages(self, folder: Path) -> None:
        """Write all results so far as Data Docs into ``folder``."""
        for site in self._context.get_site_names():
            self._context.delete_data_docs_site(site)
        store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)}
        self._context.add_data_docs_site("pages", {"class_name": "SiteBuilder", "store_backend": store})
        self._context.build_data_docs()

    def _expectation(self, rule: Rule) -> Any:
        import great_expectations.expectations as gxe

        return getattr(gxe, rule.expectation)(**rule.arguments, **_described(rule))

    def _none_of(self, rule: Rule) -> Any:
        import great_expectations.expectations as gxe

        return gxe.ExpectColumnValuesToBeBetween(column=rule.code, min_value=0, max_value=0, **_described(rule))


def _described(rule: Rule) -> dict[str, Any]:
    text = f"{rule.code}: {rule.expected}"
    return {"meta": {"code": rule.code}, "severity": _SEVERITY[rule.severity], "description": text}


def run_name(manifest: Manifest) -> str:
    """What the results on one digest are called."""
    return f"{manifest.survey}-{manifest.digest[:12]}"


def _finding(rule: Rule, table: Table, result: Mapping[str, Any], frame: pd.DataFrame) -> Finding:
    rows = [{name: row[name] for name in table.identity} for row in result.get("partial_unexpected_index_list") or []]
    return _said(
        rule,
        failing=result["unexpected_count"],
        total=result["element_count"] - result["missing_count"],
        value=result["partial_unexpected_list"][0],
        rows=rows[:EXAMPLES] if table.identity else [],
        columns=_first_row(frame, rows),
    )


def _counted(rule: Rule, count: Count) -> Finding:
    rows = [identity for _, _, identity in count.first]
    return _said(rule, failing=count.failing, total=count.total, value=count.first[0][1], rows=rows, columns={})


def _said(
    rule: Rule, *, failing: int, total: int, value: Any, rows: list[dict[str, Any]], columns: Mapping[str, Any]
) -> Finding:
    facts = {"count": f"{failing:,}", "total": f"{total:,}", "value": _text(value)}
    return Finding(
        code=rule.code,
        severity=rule.severity,
        found=rule.found.format_map({name: _text(column) for name, column in columns.items()} | facts),
        expected=rule.expected,
        release=rule.release,
        examples=[", ".join(f"{column} {_text(named)}" for column, named in row.items()) for row in rows],
    )


def _first_row(frame: pd.DataFrame, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns of the first failing row, in tables short enough to look it up."""
    if len(frame) > _SHORT_TABLE:
        return {}
    if rows and rows[0]:
        frame = frame[np.logical_and.reduce([frame[name] == value for name, value in rows[0].items()])]
    return {str(name): value for name, value in frame.iloc[0].items()}


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
