"""SEG-Y surveys into verified MDIO volumes on the lake."""

METAFLOW_PACKAGE_POLICY = "include"
