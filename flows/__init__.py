"""Metaflow flows: thin steps that call the rooms beside them."""
