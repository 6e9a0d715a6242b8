"""The former name of `sopa_plugin.compiled`, kept for one release."""

from sopa_plugin.compiled import CompiledClassifier as Matcher
from sopa_plugin.compiled import load_compiled as load_matcher
from sopa_plugin.compiled import save_compiled as save_matcher

__all__ = ["Matcher", "load_matcher", "save_matcher"]
