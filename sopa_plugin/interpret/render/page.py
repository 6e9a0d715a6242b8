"""The page and the style that explanations share: static, one file, light and dark."""

from __future__ import annotations

from sopa_plugin.interpret.render.markup import clean, tag

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c2128",
    "muted": "#5b6572",
    "line": "#d4dae1",
    "card": "#f6f8fa",
    "for": "#0b5cad",
    "for-soft": "#cfe4f8",
    "against": "#a83f00",
    "against-soft": "#fbdcc4",
    "loop": "#6b3fa0",
}
"""Colours by use. Blue for and orange against stay apart in every common colour blindness."""

DARK = {
    "paper": "#0f141a",
    "ink": "#e4e9ef",
    "muted": "#98a3b0",
    "line": "#333c47",
    "card": "#171d25",
    "for": "#79b8ff",
    "for-soft": "#16395e",
    "against": "#ffab70",
    "against-soft": "#5a3010",
    "loop": "#c9a6f5",
}

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"

LANE = 5
"""Pixels between two lines below a text."""

MAX_LANES = 12
"""Lines below a text that the style knows; spans beyond them share the last."""

_SVG_RULES = """
.sopa-svg text{{font-family:{font};fill:{ink}}}
.sopa-svg .muted{{fill:{muted}}}
.sopa-svg .strong{{font-weight:600}}
.sopa-svg .paper{{fill:{paper}}}
.sopa-svg .card{{fill:{card};stroke:{line}}}
.sopa-svg .state{{fill:{card};stroke:{ink};stroke-width:1.5}}
.sopa-svg .arc{{fill:none;stroke:{muted};stroke-width:1.5}}
.sopa-svg .arrow{{fill:{muted}}}
.sopa-svg .epsilon{{fill:none;stroke:{muted};stroke-width:1.25;stroke-dasharray:4 3}}
.sopa-svg .loop{{fill:none;stroke:{loop};stroke-width:1.5}}
.sopa-svg .loop-arrow,.sopa-svg text.loop-word{{fill:{loop};stroke:none}}
.sopa-svg text.loop-word{{font-style:italic}}
.sopa-svg text.for{{fill:{for}}}
.sopa-svg text.against{{fill:{against}}}
.sopa-svg rect.for{{fill:{for}}}
.sopa-svg rect.against{{fill:{against}}}
.sopa-svg rect.neither{{fill:{muted}}}
.sopa-svg line.for{{stroke:{for}}}
.sopa-svg line.against{{stroke:{against};stroke-dasharray:5 3}}
.sopa-svg rect.for-soft{{fill:{for_soft}}}
.sopa-svg rect.against-soft{{fill:{against_soft}}}
.sopa-svg rect.neither-soft{{fill:{line}}}
.sopa-svg .heat{{fill:{for}}}
.sopa-svg .grid{{fill:none;stroke:{line}}}
.sopa-svg .best-epsilon{{fill:none;stroke:{against};stroke-width:2;stroke-dasharray:4 3}}
.sopa-svg .best{{fill:none;stroke:{against};stroke-width:2.5}}
.sopa-svg .best-arc{{fill:none;stroke:{against};stroke-width:2}}
.sopa-svg .best-arrow{{fill:{against}}}
"""


def _svg_rules(colors: dict[str, str]) -> str:
    return _SVG_RULES.format(font=FONT, **{k.replace("-", "_"): v for k, v in colors.items()})


SVG_STYLE = (
    _svg_rules(LIGHT).strip()
    + "\n@media (prefers-color-scheme:dark){"
    + _svg_rules(DARK).strip()
    + "}"
)
"""The rules of every picture, colours written out: picture viewers know no CSS variables."""


def _variables(colors: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colors.items())


STYLE = f"""
.sopa{{{_variables(LIGHT)}color-scheme:light dark;background:var(--paper);color:var(--ink);
font:16px/1.5 {FONT};padding:1px 0}}
@media (prefers-color-scheme:dark){{.sopa{{{_variables(DARK)}}}}}
.sopa *{{box-sizing:border-box}}
.sopa h1{{font-size:1.6rem;line-height:1.2;margin:1.2rem 0 .3rem}}
.sopa h2{{font-size:1.2rem;margin:2rem 0 .6rem}}
.sopa h3{{font-size:1rem;margin:0}}
.sopa p{{margin:.4rem 0}}
.sopa .muted{{color:var(--muted)}}
.sopa .small{{font-size:.85rem}}
.sopa .for{{color:var(--for)}}
.sopa .against{{color:var(--against)}}
.sopa .neither{{color:var(--muted)}}
.sopa .num{{font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}}
.sopa .scroll{{overflow-x:auto;max-width:100%}}
.sopa table{{border-collapse:collapse;margin:0;background:none}}
.sopa th,.sopa td{{padding:.25rem .5rem;text-align:start;vertical-align:top;border:0;
background:none}}
.sopa th{{white-space:nowrap;font-weight:600;font-size:.8rem;color:var(--muted)}}
.sopa .rows tr+tr>*,.sopa .rows tbody tr>*{{border-top:1px solid var(--line)}}
.sopa svg{{max-width:none;display:block}}
.sopa .card{{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:.9rem 1rem;min-width:0}}
.sopa .cards{{display:grid;gap:1rem;
grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr))}}
.sopa .facts{{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;align-items:baseline;margin:0 0 .5rem}}
.sopa .facts h3{{font-size:1.1rem}}
.sopa .tiles{{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));
margin:.8rem 0}}
.sopa .tile b{{display:block;font-size:1.4rem;line-height:1.3}}
.sopa details>summary{{cursor:pointer;color:var(--muted);font-size:.85rem;margin-top:.5rem}}
.sopa .phrases td{{white-space:nowrap;border-inline-start:1px solid var(--line)}}
.sopa .phrases td:first-child{{border-inline-start:0}}
.sopa .phrases .eps{{display:block;border:1.5px dashed var(--muted);border-radius:4px;
color:var(--muted);text-align:center;line-height:1.2;min-width:1.8rem}}
.sopa .phrases .loop{{display:block;color:var(--loop);font-style:italic;font-size:.85rem}}
.sopa .reading{{display:grid;gap:1rem 2rem;grid-template-columns:minmax(0,3fr) minmax(0,2fr)}}
@media (max-width:60rem){{.sopa .reading{{grid-template-columns:minmax(0,1fr)}}}}
.sopa .spans{{margin:.6rem 0;overflow-wrap:anywhere}}
.sopa .spans .u{{border-bottom:3px solid transparent}}
.sopa .spans .u.for{{border-bottom:3px solid var(--for)}}
.sopa .spans .u.against{{border-bottom:3px dashed var(--against)}}
.sopa .spans .u,.sopa .spans .t{{color:inherit}}
.sopa .spans .t.for{{background:var(--for-soft)}}
.sopa .spans .t.against{{background:var(--against-soft)}}
.sopa .spans .t.neither{{background:var(--line)}}
.sopa .spans .key{{font-size:.7em;font-weight:600;vertical-align:.35em;line-height:0;
padding:0 .15em}}
.sopa .looped{{color:var(--loop);font-style:italic}}
.sopa .bar{{display:inline-block;height:.6rem;vertical-align:baseline;border-radius:2px}}
.sopa .bar.for{{background:var(--for)}}
.sopa .bar.against{{background:repeating-linear-gradient(115deg,var(--against) 0 4px,
var(--against-soft) 4px 6px)}}
.sopa td.axis{{width:6rem;min-width:5rem;vertical-align:middle}}
.sopa a{{color:inherit}}
.sopa .document{{margin-bottom:1rem}}
.sopa .arcs td:not(:last-child){{white-space:nowrap}}
.sopa hr{{border:0;border-top:1px solid var(--line);margin:2rem 0}}
.sopa .axis span{{display:flex;width:50%}}
.sopa .axis .right{{margin-inline-start:50%}}
.sopa .axis .left{{justify-content:flex-end}}
""" + "".join(
    f".sopa .spans .l{lane}{{padding-bottom:{lane * LANE + 1}px}}\n" for lane in range(MAX_LANES)
)


def page(title: str, body: str) -> str:
    """A whole HTML page."""
    head = tag("meta", charset="utf-8")
    head += tag("meta", name="viewport", content="width=device-width, initial-scale=1")
    head += tag("meta", name="color-scheme", content="light dark")
    head += tag("title", clean(title)) + f"<style>{_PAGE_STYLE}{STYLE}{SVG_STYLE}</style>"
    main = tag("main", body)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>'
        f'<body class="sopa">{main}</body></html>\n'
    )


_PAGE_STYLE = "body{margin:0}main{max-width:80rem;margin:0 auto;padding:0 1rem 3rem}"


def fragment(body: str) -> str:
    """The same for a notebook's output cell."""
    style = f"<style>{STYLE}{SVG_STYLE}</style>"
    return f'<div class="sopa" style="padding:.5rem 1rem">{style}{body}</div>'


def picture(width: float, height: float, title: str, *elements: str, alone: bool = True) -> str:
    """One SVG picture; `alone` in a file of its own, else within a page that has the style."""
    ground = tag("rect", width=width, height=height, class_="paper") if alone else ""
    style = f"<style>{SVG_STYLE}</style>" if alone else ""
    return tag(
        "svg",
        tag("title", clean(title)),
        style,
        ground,
        *elements,
        xmlns="http://www.w3.org/2000/svg",
        class_="sopa-svg",
        role="img",
        width=width,
        height=height,
        view_box=f"0 0 {width:.0f} {height:.0f}",
    )
