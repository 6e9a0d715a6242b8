"""Readers of labelled texts: `sst`, `amazon`, `roc` and `text`."""

from sopa_plugin.data.readers.dataset_reader import DatasetReader
from sopa_plugin.data.readers.sst import SstReader

__all__ = ["DatasetReader", "SstReader"]
