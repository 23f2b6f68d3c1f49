"""Compares the manual with the code: snippets are compiled, and shown output is what the programs print.

    docs_test.py ROOT BUILD [PAGE...]

Each code block of README.md, CONTRIBUTING.md and docs/*.md must be one of these; the test fails for any other block:

    ```cpp, cmake, python   a part, line by line, of a source that this build compiles or a test of it runs
    ```text, json           a part of what a program prints that the page names as examples/NAME, or of tests/docs/PAGE,
                            or of another tests/docs/NAME that the page names
    ```console              commands ("$ ...") that are run here, each above what it prints

In each of them a line "..." stands for omitted lines. The last digits of numbers with a fraction may differ. A training
makes two steps if its command does not set the number, and only its tables are compared. The test `readme` runs the
commands of README.md.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = {"cpp", "cmake", "python"}
OUTPUTS = {"text", "json"}
TABLE_LINE = re.compile(r" P\(|^(all_|reduce_scatter|total )")
WORKFLOW = re.compile(r"cmake --workflow --preset ([\w.-]+)$")


def blocks(page):
    """(language, lines, number of the first line) of each fenced block; one in a list is indented as a whole."""
    found, inside, indent = [], None, 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if inside is None and line.lstrip().startswith("```"):
            inside, indent = (line.strip()[3:].strip(), [], number), len(line) - len(line.lstrip())
        elif inside is not None and line.strip() == "```":
            found.append(inside)
            inside = None
        elif inside is not None:
            inside[1].append(line[indent:].rstrip())
    return found


def pieces(lines):
    """The parts of a snippet between lines "...", without blank lines at either end."""
    parts, part = [], []
    for line in lines + ["..."]:
        if line.strip() not in ("...", "// ..."):
            part.append(line)
            continue
        while part and not part[0]:
            part = part[1:]
        while part and not part[-1]:
            part = part[:-1]
        if part:
            parts.append(part)
        part = []
    return parts


def contains(text, parts, same=lambda a, b: a == b):
    """Whether the text contains the parts in order. All lines of a part may have the same additional indentation."""
    at = 0
    for part in parts:
        for begin in range(at, len(text) - len(part) + 1):
            indent = text[begin][:len(text[begin]) - len(text[begin].lstrip())]
            indent = indent[:len(indent) - (len(part[0]) - len(part[0].lstrip()))]
            if all(same(indent + a if a else a, b) for a, b in zip(part, text[begin:])):
                at = begin + len(part)
                break
        else:
            return False
    return True


def alike(shown, printed):
    """Whether two lines are equal, ignoring spaces and all but three digits of numbers with a fraction."""
    number = re.compile(r"(\d+\.\d+(?:e[-+]?\d+)?)")
    if shown.split() == printed.split():
        return True
    a, b = number.split(shown), number.split(printed)
    return len(a) == len(b) and all(
        abs(float(x) - float(y)) <= 2e-3 * abs(float(y)) + 1e-6 if number.fullmatch(x) and number.fullmatch(y)
        else x.split() == y.split() for x, y in zip(a, b))


def tested_sources(root, build):
    """The lines, in order and as a set, of each file that is compiled, included by such a file, or run by a test."""
    waiting = [os.path.realpath(entry["file"]) for entry in json.load(open(build / "compile_commands.json"))]
    waiting.append(str(root / "examples/eigen_solve.cpp"))  # compiled only where Eigen is installed
    waiting += map(str, [*root.glob("tests/consumer/**/*"), *root.glob("tests/**/*.py")])
    texts = {}  # sources in the build folder (unity builds) only include others
    while waiting:
        path = Path(waiting.pop())
        if path in texts or not path.is_file() or not path.is_relative_to(root):
            continue
        texts[path] = path.read_text().splitlines()
        for line in texts[path]:
            included = re.match(r'#include ["<](?:tessera/)?([^">]+)[">]', line)
            if included:
                waiting += [str(root / included[1]), str(path.parent / included[1])]
    return [(lines, {line.strip() for line in lines})
            for path, lines in texts.items() if not path.is_relative_to(build)]


def is_compiled(parts, sources):
    needed = {line.strip() for part in parts for line in part}
    return any(needed <= words and contains(lines, parts) for lines, words in sources)


class Programs:
    """The built examples and the programs of the pages. Each is run once, and its output is cached."""

    def __init__(self, root, build):
        self.root, self.build, self.printed = root, build, {}
        self.scratch = tempfile.TemporaryDirectory()

    def path(self, name):
        found = [p for p in (self.build / "examples" / name, self.build / "tests" / name) if p.is_file()]
        return found[0] if found else None

    def output(self, command):
        if command not in self.printed:
            name, *arguments = command.split(maxsplit=1)
            line = f"{self.path(name)} {arguments[0] if arguments else ''}"
            if name == "train_transformer" and not any(flag in line for flag in ("--help", "--steps", "--replay")):
                line += " --steps 2 --warmup 0"
            line = line.replace(" docs", f" {self.root}/docs").replace(" README.md", f" {self.root}/README.md")
            run = subprocess.run(line, shell=True, cwd=self.scratch.name, capture_output=True, text=True,
                                 env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.printed[command] = (run.returncode, (run.stdout + run.stderr).splitlines())
        return self.printed[command]

    def of_page(self, page, text):
        names = set(re.findall(r"examples/(\w+)", text)) | {"docs_" + page.stem}
        names |= {"docs_" + name for name in re.findall(r"tests/docs/(\w+)", text)}
        runnable = [name for name in sorted(names) if self.path(name) and name not in ("train_transformer", "inspect")]
        return [self.output(name)[1] for name in runnable]


def untested_command(programs, root, command, shown):
    """An error if a command, or the lines shown below it, do not match a program; otherwise None."""
    workflow = WORKFLOW.match(command)
    if workflow:
        presets = json.load(open(root / "CMakePresets.json"))["workflowPresets"]
        return None if workflow[1] in [p["name"] for p in presets] else "no such preset"
    match = re.fullmatch(r"build/release/(?:examples|tests)/(\S.*?)(?:\s+#.*)?", command)
    if not match or not programs.path(match[1].split()[0]):
        return None if known_elsewhere(root, command) else "a command that this test does not know"
    code, output = programs.output(match[1])
    errors = [line.split("...")[0] for line in shown if line.startswith("error: ")]
    if bool(code) != bool(errors):
        return f"ended with {code}: " + "\n".join(output[-5:])
    for error in errors:
        if not any(line.startswith(error) for line in output):
            return f"does not print: {error}"
    if "train_transformer" in command:
        missing = [line for line in shown if TABLE_LINE.search(line) and line not in output]
        return f"does not print: {missing[0]}" if missing else None
    return None if contains(output, pieces(shown), alike) else "prints something else:\n" + "\n".join(output)


def known_elsewhere(root, command):
    """Whether a test written in CMake runs the command in its own folders: installation, and the build of a
    project."""
    words = command.split("#")[0].split()
    return words[:2] in (["cmake", "--install"], ["cmake", "--build"], ["cmake", "-B"])


def commands_of(lines):
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def check_page(page, root, sources, programs):
    """Returns (number of snippets, untested parts) of one page."""
    wrong, text = [], page.read_text()
    shown = blocks(page)
    for language, lines, number in shown:
        at = f"{page.relative_to(root)}:{number}"
        if language in SOURCES:
            if not pieces(lines) or not is_compiled(pieces(lines), sources):
                wrong.append(f"{at}: no compiled source has this code")
        elif language in OUTPUTS:
            parts, outputs = pieces(lines), programs.of_page(page, text)
            if not parts or not any(contains(output, parts, alike) for output in outputs):
                wrong.append(f"{at}: no program that the page names prints this")
        elif language == "console":
            if page.name == "README.md":
                continue
            for command, output in commands_of(lines):
                why = untested_command(programs, root, command, output)
                if why:
                    wrong.append(f"{at}: $ {command}\n  {why}")
        else:
            wrong.append(f"{at}: a block of the kind '{language}'; it is cpp, cmake, python, text, json or console")
    return len(shown), wrong


def main(root, build, *pages):
    root, build = Path(os.path.realpath(root)), Path(os.path.realpath(build))
    chosen = [Path(os.path.realpath(p)) for p in pages] or [root / "README.md", root / "CONTRIBUTING.md",
                                                            *sorted((root / "docs").glob("*.md"))]
    sources, programs = tested_sources(root, build), Programs(root, build)
    count, wrong = 0, []
    for page in chosen:
        snippets, untested = check_page(page, root, sources, programs)
        count += snippets
        wrong += untested
    print("\n".join(wrong))
    print(f"{count} snippets, {len(wrong)} untested")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
