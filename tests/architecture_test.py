"""Compares the manual with the sources: paths, components, the table of collectives, functions and their files.

    architecture_test.py ROOT

- Paths in backticks in README.md, CONTRIBUTING.md and docs/*.md exist: files, folders, patterns (`data/*.h`,
  `nn/tree/{tree,param}.h`, `tests/docs/<page>.cpp`), programs (`tests/benchmarks/ledger`), ctests (`docs/names`).
- In CONTRIBUTING.md, what the path of x and the answers on the all-reduce name in backticks occurs in their files.
- The functions and types that docs/architecture.md names in backticks occur in the code of the library.
- docs/architecture.md lists the same components as tests/layering_lint.cmake, in the same order.
- The table of collectives in docs/sharding.md is that of sharding/redistribution/route.cpp, row by row.
"""
import re
import sys
from itertools import zip_longest
from pathlib import Path

PATH = re.compile(r"(?:sharding|nn|optim|data|tests|examples|docs)/")
PATH_SECTION, REASON_SECTION = "## The path of x in matmul(x, w)", "### Where is this all-reduce inserted, and why?"
ROUTE = "sharding/redistribution/route.cpp"
LIBRARY = "{sharding,nn,optim,data}/**/*.{h,cpp}"


def in_backticks(text):
    """Inline code, without blocks of code."""
    text = re.sub(r"^[ ]*```.*?^[ ]*```", "", text, flags=re.S | re.M)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


def paths_in(code):
    """The paths among the words of one piece of code; names of tests after ctest's -R are none."""
    return [] if "ctest " in code else [w.rstrip(",;:.") for w in code.split() if PATH.match(w)]


def expanded(path):
    """The patterns that a path with braces and placeholders stands for."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if braces:
        return [p for part in braces[1].split(",")
                for p in expanded(path[:braces.start()] + part + path[braces.end():])]
    return [re.sub(r"<\w+>", "*", path)]


def files_of(root, path):
    """The files and folders that a path names; none where one of its patterns names nothing."""
    found = []
    for pattern in expanded(path):
        here = [p for name in (pattern, pattern + ".cpp") for p in root.glob(name.rstrip("/"))]
        if not here or (pattern.endswith("/") and not any(p.is_dir() for p in here)):
            return []
        found += here
    return found


def missing_paths(root):
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/*.md"))]
    ctests = {name for lists in root.glob("tests/**/CMakeLists.txt")
              for name in re.findall(r"NAME\s+([\w/]+)", lists.read_text())}
    return [f"{page.relative_to(root)}: `{path}` does not exist" for page in pages
            for path in sorted({p for code in in_backticks(page.read_text()) for p in paths_in(code)})
            if path not in ctests and not files_of(root, path)]


def section(page, heading):
    """What stands between a heading and the next one; empty where there is no such heading."""
    match = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, flags=re.S | re.M)
    return match[1] if match else ""


def table(text):
    """The cells of each row of the first table, without the header."""
    lines = re.search(r"(?:^\|.*\n)+", text, flags=re.M)
    rows = lines[0].splitlines()[2:] if lines else []
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def unknown_names(root, place, paths, words):
    """Functions and types among the words that occur in none of the files."""
    text = "".join(p.read_text() for path in paths for p in files_of(root, path))
    names = [w.removesuffix("()") for w in words if re.fullmatch(r"[A-Za-z_]\w*(::\w+)*(\(\))?", w)]
    return [f"{place}: `{name}` is not in {', '.join(paths) or 'any file'}" for name in names
            if not all(re.search(rf"\b{part}\b", text) for part in name.split("::"))]


def names_in(code):
    """The functions and types among the words of one piece of code: `f`, `A::f()`, and f and g of `f(g(x), y)`."""
    name = r"[A-Za-z_]\w*(?:::\w+)*"
    return [code] if re.fullmatch(name, code) else re.findall(rf"{name}(?=\()|\b[A-Z]\w*[a-z]\w*(?:::\w+)*", code)


def strange_names(root):
    """What docs/architecture.md names and no line of the library's code has; comments do not count."""
    lines = (line for p in files_of(root, LIBRARY) for line in p.read_text().splitlines())
    known = set(re.findall(r"\w+", "\n".join(line.split("//")[0] for line in lines)))
    codes = [c for c in in_backticks((root / "docs/architecture.md").read_text()) if not paths_in(c)]
    return [f"docs/architecture.md: `{name}` is not in {LIBRARY}"
            for name in sorted({n for code in codes for n in names_in(code)}) if not known.issuperset(name.split("::"))]


def wrong_path_table(root, page):
    rows = table(section(page, PATH_SECTION))
    wrong = [] if rows else [f"CONTRIBUTING.md: no table under '{PATH_SECTION}'"]
    for number, cells in enumerate(rows, 1):
        place = f"CONTRIBUTING.md, path of x, step {number}"
        if len(cells) != 4 or cells[0] != str(number):
            wrong.append(f"{place}: a row is its number, a component, files and what happens")
            continue
        paths = [path for code in in_backticks(cells[2]) for path in paths_in(code)]
        component = cells[1] if "/" in cells[1] else "sharding/" + cells[1]
        wrong += [f"{place}: {path} is not in the component {cells[1]}" for path in paths
                  if not path.startswith(component + "/")]
        wrong += unknown_names(root, place, paths, in_backticks(cells[3]))
    return wrong


def wrong_reason_paragraphs(root, page):
    """Each paragraph or list is one answer of up to four files; each name belongs to the file that stands before it."""
    place, wrong, total = f"CONTRIBUTING.md, '{REASON_SECTION.strip('# ')}'", [], 0
    for answer in section(page, REASON_SECTION).split("\n\n"):
        files, named = [], {}
        for code in in_backticks(answer):
            if PATH.match(code):
                files.append(code)
            elif files:
                named.setdefault(files[-1], []).append(code)
        total += len(files)
        wrong += [f"{place}: an answer names {len(set(files))} files, at most 4"] if len(set(files)) > 4 else []
        wrong += [fault for path, words in named.items() for fault in unknown_names(root, place, [path], words)]
    return wrong if total else [f"{place}: names no file"]


def differences(place, said, so, what):
    """One fault for the first place where two lists differ."""
    for number, (a, b) in enumerate(zip_longest(said, so), 1):
        if a != b:
            return [f"{place}: {what} {number} is {a or 'missing'}, in the sources it is {b or 'missing'}"]
    return [] if so else [f"{place}: the sources have no {what} that this test can read"]


def wrong_components(root, folder):
    lint = (root / "tests/layering_lint.cmake").read_text()
    components = re.search(rf"set\(components_of_{folder}\s+([^)]*)\)", lint)
    page = root / "docs/architecture.md"
    said = re.findall(rf"^\| `{folder}/(\w+)/` \|", page.read_text() if page.exists() else "", flags=re.M)
    in_lint = components[1].split() if components else []
    return differences("docs/architecture.md", said, in_lint, f"component of {folder}/")


def wrong_collectives(root):
    source = (root / ROUTE).read_text()
    block = {name: (re.search(rf"constexpr \w+ {name}\[\] = \{{(.*?)\n\}};", source, re.S) or ["", ""])[1]
             for name in ("rows", "collectives")}
    in_ledgers = dict(re.findall(r'\{Collective::(\w+),\s*"(\w+)"', block["collectives"]))
    row = r'\{Row::\w+,\s*"([^"]+)",\s*"([^"]+)",\s*Collective::(\w+),\s*Collective::(\w+)\}'
    so = [" | ".join([a, b, in_ledgers.get(there, there), in_ledgers.get(back, back)])
          for a, b, there, back in re.findall(row, block["rows"])]
    if len(so) != block["rows"].count("Row::"):
        return [f"{ROUTE}: a row of `rows` is not written as {{Row::, from, to, Collective::, Collective::}}"]
    said = table(section((root / "docs/sharding.md").read_text(), "## The redistribute table"))
    return differences("docs/sharding.md, table of collectives", [" | ".join(r) for r in said], so, "row")


def main(root):
    root = Path(root)
    guide = (root / "CONTRIBUTING.md").read_text()
    wrong = (missing_paths(root) + wrong_path_table(root, guide) + wrong_reason_paragraphs(root, guide) +
             wrong_components(root, "sharding") + wrong_components(root, "nn") + wrong_collectives(root) +
             strange_names(root))
    print("\n".join(wrong + [f"{len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
