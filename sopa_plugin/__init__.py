"""Soft Patterns (SoPa; Schwartz, Thomson and Smith, ACL 2018) as a library of registrable parts.

Nothing heavy is imported here: `sopa_plugin.encoders` and `sopa_plugin.wfsa` need torch alone,
`import sopa_plugin.models` registers the model with transformers' Auto classes.
"""

from __future__ import annotations

__version__ = "0.1.0"
