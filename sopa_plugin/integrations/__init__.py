"""Soft patterns in other people's pipelines: a file for each ecosystem, imported only when used."""
