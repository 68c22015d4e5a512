"""The ``survey`` command: look at a SEG-Y file, take it in, see what is published."""

from __future__ import annotations

import click

from ingestion.cli.propose import propose, schema
from ingestion.cli.published import list_surveys, show
from ingestion.cli.reading import ingest, inspect
from ingestion.cli.volumes import export, verify


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Bring SEG-Y surveys onto the lake as verified MDIO volumes.

    \b
    survey inspect NAME.sgy                  what is in it; what would hold it back
    survey propose NAME.sgy                  a survey spec for it, with the evidence for every value
    survey ingest NAME.sgy --lake s3://LAKE  convert, verify, publish, or hold it back
    survey schema                            JSON schema of the survey spec, for editors
    survey list --lake s3://LAKE             what is published, what is held back
    survey show NAME --lake s3://LAKE        one survey
    survey verify --lake s3://LAKE           read what is published again: bit rot, lost objects
    survey export NAME --lake s3://LAKE --output FOLDER   back to SEG-Y
    survey release NAME --lake s3://LAKE     judge it again: with a mended spec, or on a person's word
    survey withdraw | restore NAME           it may not be used any more, or may again
    survey models NAME --lake s3://LAKE      the models that were trained on it
    survey sweep --lake s3://LAKE            what killed ingests left

    A file may be a path, file:///… or s3://…; S3 is reached by the usual AWS_* variables (AWS_ENDPOINT_URL for
    a server of your own). What a file does not say, or says wrongly, stands in its spec, a small YAML file beside
    it (NAME.yaml), which `survey propose` writes for you:

    \b
    inline_byte: 9
    crossline_byte: 21
    sample_format: ieee
    crs: EPSG:23031

    A survey that is held back says what would release it: a line in its spec, or `survey release`.

    Exit status: 0 when done, 1 when the survey is held back or something could not be done, 2 for a wrong command.
    """


for command in (inspect, propose, ingest, schema, list_surveys, show, verify, export):
    main.add_command(command)
