"""Metaflow flows: thin steps that call the rooms beside them."""

import os

METAFLOW_PACKAGE_POLICY = "include"
_NAMES = ("METAFLOW_USER", "SUDO_USER", "USERNAME", "USER")

if all(os.environ.get(name, "root") in ("", "root") for name in _NAMES):
    os.environ["USERNAME"] = "operator"  # root, containers and cron: Metaflow refuses to run without another name
