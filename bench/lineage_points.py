"""The points of bench/lineage.txt, what a run found at them, and whether that is what is asked. No torch, no GPU."""

import collections
import operator
import pathlib
import shlex

LIST = pathlib.Path(__file__).resolve().parent / "lineage.txt"
PUBLISHED = ("theirs_ms", "torch_ms", "max_diff", "waste", "ratio_to_torch", "gpu")
ASKED = ("peers", "ratio", "max_diff", "family", "tflops", "workspace_bytes")
COLUMNS = (
    "project,problem,gpu,theirs_ms,theirs_torch_ms,theirs_ratio_to_torch,theirs_max_diff,theirs_waste,peer,peer_ms,other_peers,"
    "asked_family,family,ms,tflops,ns_per_token_head,ratio,max_diff,cosine,peer_max_diff,workspace_bytes,asked,verdict,note,rounds,"
    "spread,config"
).split(",")

Point = collections.namedtuple("Point", "project problem published asked")
# `published` and `asked` are dicts of the words of their columns; numbers are floats.


def words(text, known, where):
    """{name: value} of name=value words."""
    found = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals or name not in known:
            raise ValueError(f"{where}: \"{word}\" is none of {', '.join(known)}")
        found[name] = value if name in ("gpu", "peers", "family") else float(value)
    return found


def read_points(path=LIST):
    points = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}:{number}"
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 4:
            raise ValueError(f"{where}: {len(cells)} columns; a point has 4, separated by |")
        project, problem, published, asked = cells
        points.append(Point(project, problem, words(published, PUBLISHED, where), words(asked, ASKED, where)))
    return points


def of_projects(points, names):
    """Those of the projects in "a,b"; "" is all. Raises SystemExit listing the projects for a name that is none."""
    wanted = [name for name in names.split(",") if name]
    known = list(dict.fromkeys(point.project for point in points))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"no project is named {', '.join(unknown)}; there are {', '.join(known)}")
    return [point for point in points if not wanted or point.project in wanted]


def theirs_ratio(published):
    """Their speed relative to PyTorch's in their own run; None where it is not known."""
    if "ratio_to_torch" in published:
        return published["ratio_to_torch"]
    if "theirs_ms" in published and "torch_ms" in published:
        return published["torch_ms"] / published["theirs_ms"]
    return None


def asked_text(asked):
    parts = []
    if "ratio" in asked:
        parts.append(f">= {asked['ratio']:g}x")
    if "tflops" in asked:
        parts.append(f">= {asked['tflops']:g} TFLOP/s")
    if "max_diff" in asked:
        parts.append(f"max diff <= {asked['max_diff']:g}")
    if "workspace_bytes" in asked:
        parts.append(f"workspace <= {asked['workspace_bytes']:g} B")
    return ", ".join(parts)


def verdict(row, asked):
    """PASS, MISS, or "" where nothing is asked. What is asked and was not measured is a MISS."""
    holds = {"ratio": operator.ge, "tflops": operator.ge, "max_diff": operator.le, "workspace_bytes": operator.le}
    bounds = {name: asked[name] for name in holds if name in asked}
    if not bounds:
        return ""
    good = all(row[name] != "" and holds[name](float(row[name]), bound) for name, bound in bounds.items())
    return "PASS" if good else "MISS"


def row_of(point, found):
    """A row of COLUMNS: `found` has what a run measured at the point, by column; numbers as numbers."""
    published = point.published
    row = dict.fromkeys(COLUMNS, "")
    row |= {"project": point.project, "problem": point.problem, "gpu": published.get("gpu", "")}
    row |= {"asked": asked_text(point.asked), "asked_family": point.asked.get("family", "")}
    for column, name in (("theirs_ms", "theirs_ms"), ("theirs_torch_ms", "torch_ms"), ("theirs_max_diff", "max_diff")):
        row[column] = published.get(name, "")
    row["theirs_waste"] = published.get("waste", "")
    ratio = theirs_ratio(published)
    row["theirs_ratio_to_torch"] = f"{ratio:.3f}" if ratio else ""
    for name, value in found.items():
        row[name] = f"{value:.5g}" if isinstance(value, float) else value
    row["verdict"] = verdict(row, point.asked)
    return row


# ---- What is printed ----

TABLE = ("project", "problem", "theirs", "PyTorch here", "ours", "TFLOP/s", "ns/token/head", "ratio", "asked", "")


def short(problem):
    return problem.replace("fwd ", "").replace("num_heads", "heads").replace("head_dim", "dim")


def cells(row):
    theirs = f"{float(row['theirs_ms']):g} ms on {row['gpu']}" if row["theirs_ms"] else ""
    if row["theirs_ratio_to_torch"]:
        theirs += f"{', ' if theirs else ''}{row['theirs_ratio_to_torch']}x of torch"
        if not row["theirs_ms"]:
            theirs += f" on {row['gpu']}"
    if row["theirs_max_diff"]:
        theirs = f"max diff {float(row['theirs_max_diff']):.3g}"
    peer = f"{float(row['peer_ms']):.4g} ms {row['peer']}" if row["peer_ms"] else ""
    ours = f"{float(row['ms']):.4g} ms {row['family']}" if row["ms"] else row["note"]
    ratio = f"{float(row['ratio']):.2f}x" if row["ratio"] else ""
    if row["max_diff"]:
        ratio += f"{', ' if ratio else ''}diff {float(row['max_diff']):.1e}"
    if row["peer_max_diff"]:
        ratio += f" ({float(row['peer_max_diff']):.1e})"
    tflops, latency = (f"{float(row[name]):.4g}" if row[name] else "" for name in ("tflops", "ns_per_token_head"))
    return (row["project"], short(row["problem"]), theirs, peer, ours, tflops, latency, ratio, row["asked"], row["verdict"])


def summary(rows):
    """The rows as a table, and how many of the figures are reached."""
    table = [TABLE, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(TABLE))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in table]
    verdicts = [row["verdict"] for row in rows if row["verdict"]]
    lines.append(f"{verdicts.count('PASS')} of {len(verdicts)} figures reached")
    return "\n".join(lines)
