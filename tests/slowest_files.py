"""The ten slowest files of the build: kept in slowest_files.txt with their seconds, and held to it.

slowest_files.py BUILD           fails if another file of BUILD took twice as long as the tenth of the list
slowest_files.py BUILD --write   makes the list anew, after a build from nothing on an idle machine without ccache

The seconds are compared within one build, so the speed of the machine does not matter. A build whose files came from
ccache is passed over (exit status 77).
"""

import pathlib
import sys

LIST = pathlib.Path(__file__).with_suffix(".txt")
HEAD = "# Seconds, and what they compile: the ten slowest of a build from nothing on two idle cores, by slowest_files.py\n"


def seconds_of(build):
    """Of each object of the last build, by its path."""
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if output.endswith((".o", ".gch", ".pch")):
            seconds[output.replace("CMakeFiles/", "").replace(".dir", "")] = (int(end) - int(start)) / 1000
    return seconds


def main():
    build = pathlib.Path(sys.argv[1])
    seconds = seconds_of(build)
    slowest = sorted(seconds, key=seconds.get, reverse=True)[:10]
    if sys.argv[2:] == ["--write"]:
        LIST.write_text(HEAD + "".join(f"{seconds[name]:5.0f}  {name}\n" for name in slowest))
        return 0
    listed = {name: float(time) for time, name in (line.split() for line in LIST.read_text().splitlines()[1:])}
    for name in slowest:
        print(f"{seconds[name]:5.0f}  {name}{'' if name in listed else '  (not in the list)'}")
    here = [seconds[name] for name in listed if name in seconds]
    if len(here) < len(listed) or sum(here) < sum(listed.values()) / 4:
        print("not a build from nothing without ccache: nothing to compare")
        return 77
    slower = [name for name in slowest if name not in listed and seconds[name] > 2 * min(here)]
    for name in slower:
        print(f"[slowest_files] {name}: {seconds[name]:.0f} s given, expected at most twice the {min(here):.0f} s of the "
              "fastest in slowest_files.txt. Make it lighter (which headers does it need?), or make the list anew.")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
