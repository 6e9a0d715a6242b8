"""What the patterns match in all sentences."""

from __future__ import annotations

from sopa_plugin.benchmarks.bench import OURS, Bench
from sopa_plugin.benchmarks.report import Ratio, Seconds, Table, Target
from sopa_plugin.benchmarks.timing import Work, interleave
from sopa_plugin.interpret import Explainer

PHRASES = 10


def reading(bench: Bench) -> None:
    """The best phrases of every pattern over all sentences, beside predicting the sentences."""
    texts = list(bench.workload.texts)
    model = bench.workload.classifier()
    matcher, explainer = model.to_matcher(), Explainer.from_model(model)
    explainer.subject.prepare()
    predict, read = f"{OURS}: labels", f"{OURS}: phrases, aligned, and effects"
    work: dict[str, Work] = {
        predict: lambda: matcher.predict(texts),
        read: lambda: explainer.patterns(texts, k=PHRASES, words=0),
    }
    seconds = interleave(work, bench.rounds, bench.clock)
    found = Ratio.of(seconds[read] / seconds[predict])
    rows = [{"what": name, "time": Seconds.of(each)} for name, each in seconds.items()]
    note = (
        f"{len(texts):,} sentences from raw text: labels by the compiled model; the {PHRASES} best "
        f"phrases of each of {len(explainer.subject.names)} patterns with alignments and effects."
    )
    bench.report.tables.append(Table("Reading what patterns match", rows, note))
    what = "phrases of all patterns against labels"
    bench.report.targets.append(Target(what, found, 5, at_most=True))
