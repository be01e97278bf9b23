"""A section of the benchmark: tables on the terminal, the same as JSON, and a chart of bars (SVG).

usage: figures.py FILE.json...   draws the charts again
"""

import html
import json
import os
import statistics
import sys
import time

OUT = os.environ.get("BENCH_OUT")
WIDTH, LABEL, BAR, ROW = 860, 300, 420, 24


class Section:
    def __init__(self, name, title, versions):
        self.name, self.title, self.versions, self.tables = name, title, versions, []
        print(f"{title}\n{', '.join(versions)}, Linux {os.uname().release}", flush=True)

    def table(self, title, unit, better="less"):
        self.tables.append({"title": title, "unit": unit, "better": better, "rows": []})
        print(f"\n{title}", flush=True)

    def row(self, name, values, text="", limit=None):
        """One line of the last table: its median is the bar. `limit` is what the project promises, as a ratio."""
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        quarter = len(values) // 4
        ordered = sorted(values)
        entry = {"name": name, "median": statistics.median(values), "low": ordered[quarter], "high": ordered[-1 - quarter], "runs": len(values), "text": text}
        if limit is not None:
            entry["limit"] = limit
        table = self.tables[-1]
        table["rows"].append(entry)
        spread = f" [{entry['low']:.2f}..{entry['high']:.2f}]" if len(values) > 1 else ""
        print(f"  {name:40}{entry['median']:.2f}{spread} {table['unit']}{'  ' + text if text else ''}", flush=True)

    def note(self, text):
        self.tables[-1].setdefault("notes", []).append(text)
        print(f"  {text}", flush=True)

    def close(self):
        if not OUT:
            return
        os.makedirs(OUT, exist_ok=True)
        whole = {"section": self.name, "title": self.title, "versions": self.versions, "kernel": os.uname().release, "day": time.strftime("%Y-%m-%d"), "tables": self.tables}
        with open(os.path.join(OUT, f"{self.name}.json"), "w") as file:
            json.dump(whole, file, indent=1)
            file.write("\n")
        with open(os.path.join(OUT, f"{self.name}.svg"), "w") as file:
            file.write(svg(whole))


def svg(section):
    """Bars of the medians, table by table. Colours that are told apart in grey; ours is the dark one."""
    y, parts = 34, []
    text = lambda x, y, words, more="": parts.append(f'<text x="{x}" y="{y}" {more}>{html.escape(words)}</text>')
    text(12, 22, section["title"], 'font-weight="bold" font-size="15"')
    for table in section["tables"]:
        rows = table["rows"]
        if not rows:
            continue
        most = max(r["median"] for r in rows) or 1
        y += 22
        text(12, y, f"{table['title']} ({table['unit']}; {table['better']} is better)", 'font-size="12" font-style="italic"')
        for row in rows:
            y += ROW
            width = max(1.5, BAR * row["median"] / most)
            ours = row["name"].startswith("ckptfs")
            text(LABEL - 8, y, row["name"], 'text-anchor="end"')
            parts.append(f'<rect x="{LABEL}" y="{y - 13}" width="{width:.1f}" height="16" fill="{"#1f4e79" if ours else "#b8c4d0"}"/>')
            x = 0
            if "limit" in row and row["limit"] <= most:
                x = LABEL + BAR * row["limit"] / most
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 16}" y2="{y + 6}" stroke="#c0392b" stroke-width="1.5"/>')
            text(max(LABEL + width, x) + 6, y, f"{row['median']:.3g}")
        y += 8
    y += 16
    for line in ("Red: what the project promises.", ", ".join(section["versions"]), f"Linux {section['kernel']}, {section['day']}"):
        text(12, y, line, 'font-size="10" fill="#666"')
        y += 14
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name) as file:
            chart = svg(json.load(file))
        with open(name.removesuffix(".json") + ".svg", "w") as file:
            file.write(chart)
