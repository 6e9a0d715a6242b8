"""Encodings of arc scores: `sigmoid`, `identity`, `exp`, `log_sigmoid`, `positive`."""

from __future__ import annotations

from sopa_plugin.wfsa.encodings.encoding import ArcEncoding
from sopa_plugin.wfsa.encodings.exp import Exp
from sopa_plugin.wfsa.encodings.identity import Identity
from sopa_plugin.wfsa.encodings.log_sigmoid import LogSigmoid
from sopa_plugin.wfsa.encodings.positive import Positive
from sopa_plugin.wfsa.encodings.sigmoid import Sigmoid

__all__ = ["ArcEncoding", "Exp", "Identity", "LogSigmoid", "Positive", "Sigmoid"]
