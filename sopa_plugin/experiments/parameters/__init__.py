"""What a search may vary."""

from __future__ import annotations

from sopa_plugin.experiments.parameters.choice import Choice
from sopa_plugin.experiments.parameters.integer import Integer
from sopa_plugin.experiments.parameters.parameter import Parameter
from sopa_plugin.experiments.parameters.uniform import Uniform

__all__ = ["Choice", "Integer", "Parameter", "Uniform"]
