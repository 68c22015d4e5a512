"""Great Expectations suites over published surveys: verdict, findings, pictures."""

METAFLOW_PACKAGE_POLICY = "include"
