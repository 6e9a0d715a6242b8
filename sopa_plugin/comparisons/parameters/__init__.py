"""What a search may vary."""

from __future__ import annotations

from sopa_plugin.comparisons.parameters.choice import Choice
from sopa_plugin.comparisons.parameters.integer import Integer
from sopa_plugin.comparisons.parameters.parameter import Parameter
from sopa_plugin.comparisons.parameters.uniform import Uniform

__all__ = ["Choice", "Integer", "Parameter", "Uniform"]
