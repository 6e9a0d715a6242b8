"""Readers of labelled texts: `sst`, `amazon`, `roc` and `text`."""

from sopa_plugin.data.readers.amazon import AmazonReader
from sopa_plugin.data.readers.dataset_reader import DatasetReader
from sopa_plugin.data.readers.roc import RocReader
from sopa_plugin.data.readers.sst import SstReader
from sopa_plugin.data.readers.text import TextReader

__all__ = ["AmazonReader", "DatasetReader", "RocReader", "SstReader", "TextReader"]
