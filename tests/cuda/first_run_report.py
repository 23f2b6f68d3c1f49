"""Writes first_run.sh's JSON report from the files of its items, and prints the speed of the last item."""
import itertools
import json
import os
import re
import statistics
import sys

log = os.environ["LOG"]


def lines(file, most=None):
    try:
        with open(f"{log}/{file}", errors="replace") as text:
            return text.read().splitlines()[-most if most else 0:]
    except OSError:
        return []


def rows_of(texts):  # a program that was ended may leave half a line
    return [json.loads(text) for text in texts if text.startswith("{") and text.endswith("}")]


def speed_of_training(rows, command):  # of the steps after the first quarter, which has the profiled ones
    steps = [row for row in rows if "loss" in row]
    result = {"steps": len(steps)}
    for key in ["tokens_per_second", "mfu"]:
        values = [row[key] for row in steps[len(steps) // 4:] if key in row]
        if values:
            result[key] = statistics.median(values)
    sizes = [re.search(rf"--{name} (\d+)", command) for name in ["batch", "seq"]]
    if all(sizes) and result.get("tokens_per_second"):
        result["milliseconds"] = 1e3 * int(sizes[0][1]) * int(sizes[1][1]) / result["tokens_per_second"]
    if steps and "peak_bytes" in steps[-1]:
        result["peak_memory_bytes"] = steps[-1]["peak_bytes"]
    return {**result, **{f"{which}_step": steps[at] for which, at in [("first", 0), ("last", -1)] if steps}}


def text_of(speed):
    parts = [speed["error"]] if "error" in speed else []
    for key, text in [("tokens_per_second", "{:,.0f} tokens/s"), ("mfu", "MFU {:.3f}"), ("milliseconds", "{:.1f} ms"),
                      ("peak_memory_bytes", "peak {:,.0f} bytes")]:
        if speed.get(key) is not None:
            parts.append(text.format(speed[key]))
    return ", ".join(parts)


def table_of(profile, title):
    """The names and milliseconds of one table of profile.txt."""
    begin = next((i for i, line in enumerate(profile) if line.startswith(f"{title} ")), None)
    if begin is None:
        return []
    header = profile[begin].replace("with inner", "with_inner").split()
    rows = [row.rsplit(None, len(header) - 1) for row in itertools.takewhile(bool, profile[begin + 1:])]
    return [(row[0], float(row[header.index("ms/step")])) for row in rows if len(row) == len(header)]


items = []
for line in lines("items"):
    name, state, seconds, limit, command = line.split("\t")
    item = {"name": name, "state": state, "seconds": int(seconds), "limit": int(limit), "command": command,
            "last_lines": lines(f"{name}.out", 40)}
    if rows := rows_of(lines(f"{name}.metrics")):
        item["speed"] = speed_of_training(rows, command)
    if runs := [row for row in rows_of(lines(f"{name}.out")) if "how" in row]:
        item["runs"] = runs
    if profile := lines(f"{name}.profile/profile.txt"):
        item["profile"] = profile
    items.append(item)
with open(f"{sys.argv[1]}.new", "w") as file:
    json.dump({"gpus": int(os.environ["GPUS"]), "gpu_and_driver": os.environ["NAME"], "commit": os.environ["COMMIT"],
               "seconds": int(os.environ["SECONDS_USED"]), "items": items}, file, indent=1)
os.replace(file.name, sys.argv[1])

if items and items[-1]["name"] == os.environ["ITEM"]:
    if "speed" in items[-1]:
        print(f"  {text_of(items[-1]['speed'])}")
    for run in items[-1].get("runs", []):
        print(f"  {run['how']}, {run['rows']} rows: {text_of(run)}")
    for title, most in [("part", 20), ("module", 6), ("operation", 6)]:
        rows = sorted(table_of(items[-1].get("profile", []), title), key=lambda row: -row[1])[:most]
        if rows:
            print(f"  {title}s: {', '.join(f'{name} {ms:.1f} ms' for name, ms in rows if ms > 0)}")
