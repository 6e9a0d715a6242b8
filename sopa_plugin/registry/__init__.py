"""Parts found by name, built from type hints, and configs checked whole before anything is built.

```python
class Seq2VecEncoder(nn.Module, Registrable): ...

@Seq2VecEncoder.register("cnn")
class CnnEncoder(Seq2VecEncoder):
    def __init__(self, input_dim: int, num_filters: int = 100) -> None: ...

Seq2VecEncoder.from_params({"type": "cnn", "num_filters": 50}, input_dim=300)
```
"""

from sopa_plugin.registry.hints import (
    Bound,
    ConfigOf,
    LocalFile,
    LocalPath,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Rate,
    is_hub_id,
)
from sopa_plugin.registry.jsonnet import load_config, missing_files
from sopa_plugin.registry.names import (
    check_imported,
    import_plugins,
    imported_only,
    imported_plugins,
)
from sopa_plugin.registry.overrides import apply_overrides
from sopa_plugin.registry.params import Lazy, Registrable, build, check, fill_defaults
from sopa_plugin.registry.problems import ConfigError, Problem

__all__ = [
    "Bound",
    "ConfigError",
    "ConfigOf",
    "Lazy",
    "LocalFile",
    "LocalPath",
    "NonNegativeFloat",
    "NonNegativeInt",
    "PositiveFloat",
    "PositiveInt",
    "Problem",
    "Rate",
    "Registrable",
    "apply_overrides",
    "build",
    "check",
    "check_imported",
    "fill_defaults",
    "import_plugins",
    "imported_only",
    "imported_plugins",
    "is_hub_id",
    "load_config",
    "missing_files",
]
