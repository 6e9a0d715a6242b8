"""What a model's patterns match and why a document got its label (paper, section 7).

```python
from sopa_plugin.interpret import Explainer

explainer = Explainer.from_run("runs/sopa_sst")
print(explainer.patterns(texts, k=5))
explainer.document("a gripping , moving film").save("why.html")
```
"""

from __future__ import annotations

from sopa_plugin.interpret.activations import StateActivations
from sopa_plugin.interpret.automaton import ArcReading
from sopa_plugin.interpret.documents import (
    Contribution,
    DocumentExplanation,
    DocumentExplanations,
)
from sopa_plugin.interpret.explainer import Explainer
from sopa_plugin.interpret.explanation import Explanation
from sopa_plugin.interpret.match import Concordance, Match, Place, Step, pattern_names
from sopa_plugin.interpret.patterns import PatternReading, PatternsReading
from sopa_plugin.interpret.subject import EncoderSubject, Subject

__all__ = [
    "ArcReading",
    "Concordance",
    "Contribution",
    "DocumentExplanation",
    "DocumentExplanations",
    "EncoderSubject",
    "Explainer",
    "Explanation",
    "Match",
    "PatternReading",
    "PatternsReading",
    "Place",
    "StateActivations",
    "Step",
    "Subject",
    "pattern_names",
]
