"""Great Expectations suites over published surveys: verdict, findings, pictures."""

from validation.checks import validate
from validation.data_docs import data_docs
from validation.pictures import survey_pictures
from validation.verdict import load_verdict

__all__ = ["data_docs", "load_verdict", "survey_pictures", "validate"]

METAFLOW_PACKAGE_POLICY = "include"
