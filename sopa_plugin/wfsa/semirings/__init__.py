"""Semirings: `max_product`, `max_sum`, `sum_product`, `log`, `boolean`."""

from __future__ import annotations

from sopa_plugin.wfsa.semirings.boolean import Boolean
from sopa_plugin.wfsa.semirings.log import Log
from sopa_plugin.wfsa.semirings.max_product import MaxProduct
from sopa_plugin.wfsa.semirings.max_sum import MaxSum
from sopa_plugin.wfsa.semirings.semiring import Semiring
from sopa_plugin.wfsa.semirings.sum_product import SumProduct

__all__ = ["Boolean", "Log", "MaxProduct", "MaxSum", "Semiring", "SumProduct"]
