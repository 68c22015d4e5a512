"""Great Expectations suites over published surveys: verdict, findings, pictures."""

from ingestion.memory import return_large_blocks

METAFLOW_PACKAGE_POLICY = "include"

return_large_blocks()  # on import, since later it is too late
