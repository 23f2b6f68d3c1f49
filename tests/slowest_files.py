"""Compares the ten slowest files of a build with slowest_files.txt: no other may take three times as long as these.

    slowest_files.py BUILD [LIST]    prints the ten of BUILD's last build from scratch, and compares them with the list
    slowest_files.py BUILD --write   writes the list again

Times are compared within one build, so neither the machine nor other work on it matters. The test is skipped (exit
status 77) if no build compiled the listed files, or if ccache had them.
"""
import sys
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")


def builds(log):
    """The seconds per object of each ninja run. Within a run, the log's lines are in the order of completion."""
    runs, last = [{}], 0
    for line in log.read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if int(end) < last:
            runs.append({})
        last = int(end)
        if output.endswith(".o"):
            name = output.replace("CMakeFiles/", "").replace(".dir", "")
            runs[-1][name] = (int(end) - int(start)) / 1000
    return runs


def main():
    build, *more = sys.argv[1:]
    write = more == ["--write"]
    path = Path(more[0]) if more and not write else LIST
    listed = {name: float(time) for time, name in (line.split() for line in path.read_text().splitlines()[1:])}
    runs = builds(Path(build) / ".ninja_log")
    seconds = max(runs, key=len if write else lambda run: len(run.keys() & listed.keys()))
    slowest = sorted(seconds, key=seconds.get, reverse=True)[:10]
    for name in slowest:
        print(f"{seconds[name]:5.0f}  {name}{'' if name in listed else '  (not in the list)'}")
    if write:
        head = LIST.read_text().splitlines()[0]
        LIST.write_text("\n".join([head, *(f"{seconds[name]:3.0f}  {name}" for name in slowest)]) + "\n")
        return 0
    here = {name: seconds[name] for name in listed if name in seconds}
    if len(here) < len(listed) / 2:  # some are not built without the CUDA Toolkit
        print(f"SKIPPED: no one build compiled what is listed, {len(here)} of {len(listed)} files at most")
        return 77
    if sum(here.values()) < sum(listed[name] for name in here) / 4:
        print(f"SKIPPED: ccache had what is listed: {sum(here.values()):.0f} s for {len(here)} files")
        return 77
    most = 3 * max(here.values())
    slower = [name for name in slowest if name not in listed and seconds[name] > most]
    for name in slower:
        print(f"[slowest_files] {name}: {seconds[name]:.0f} s given, expected at most {most:.0f} s, thrice the slowest "
              "that is listed. Make it lighter, by fewer headers or templates, or make a new list: --write.")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
