"""Soft Patterns (SoPa; Schwartz, Thomson and Smith, ACL 2018) as a library of registrable parts.

```python
from sopa_plugin import evaluate_model, load_model, predict_texts, train_model
```

Nothing heavy is imported here: `sopa_plugin.encoders` and `sopa_plugin.wfsa` need torch alone,
`import sopa_plugin.models` registers the model with transformers' Auto classes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sopa_plugin.api import BatchPredictor, evaluate_model, predict_texts, train_model
    from sopa_plugin.models import load_model

__all__ = ["BatchPredictor", "evaluate_model", "load_model", "predict_texts", "train_model"]

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'models' if name == 'load_model' else 'api'}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
