"""Compares the manual with the sources: paths, components, the table of collectives, functions and their files.

    architecture_test.py ROOT

- Paths in backticks in README.md, CONTRIBUTING.md and docs/*.md exist: files, folders, patterns (`data/*.h`,
  `nn/tree/{tree,param}.h`, `tests/docs/<page>.cpp`), programs (`tests/benchmarks/ledger`), ctests (`docs/names`).
- In docs/operation_path.md, the names in backticks in the path of x and in the answers on the all-reduce are in their
  files.
- The functions and types in backticks in docs/architecture.md are in the library's code.
- docs/architecture.md lists the same components as tests/layering_lint.cmake, in the same order.
- The table of collectives in docs/conflicts.md equals the table of sharding/redistribution/route.cpp, row by row.
- In docs/architecture.md, the functions of a steady-state matrix product are in their files: at most 12 functions in at
  most 5 files. The functions that lead to the reason of a collective are in their files: at most 4 per ledger line.
"""
import re
import sys
from itertools import zip_longest
from pathlib import Path

PATH = re.compile(r"(?:sharding|nn|optim|data|tests|examples|docs)/")
PATH_PAGE = "docs/operation_path.md"
PATH_SECTION, REASON_SECTION = "## The path of x in matmul(x, w)", "## Where is this all-reduce inserted, and why?"
STEADY_SECTION, LEDGER_SECTION = "### A matrix product in a steady-state step", "### The reason of a collective"
ROUTE = "sharding/redistribution/route.cpp"
LIBRARY = "{sharding,nn,optim,data}/**/*.{h,cpp}"


def in_backticks(text):
    """Inline code, without blocks of code."""
    text = re.sub(r"^[ ]*```.*?^[ ]*```", "", text, flags=re.S | re.M)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


def paths_in(code):
    """Paths among the words of a piece of code. Test names after ctest's -R are not paths."""
    return [] if "ctest " in code else [w.rstrip(",;:.") for w in code.split() if PATH.match(w)]


def expanded(path):
    """The glob patterns of a path with braces and placeholders."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if braces:
        return [p for part in braces[1].split(",")
                for p in expanded(path[:braces.start()] + part + path[braces.end():])]
    return [re.sub(r"<\w+>", "*", path)]


def files_of(root, path):
    """The files and folders that match a path; empty if one of its patterns matches nothing."""
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
    """The text between a heading and the next one; empty if there is no such heading."""
    match = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, flags=re.S | re.M)
    return match[1] if match else ""


def table(text):
    """The cells of each row of the first table, without the header."""
    lines = re.search(r"(?:^\|.*\n)+", text, flags=re.M)
    rows = lines[0].splitlines()[2:] if lines else []
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def unknown_names(root, place, paths, words):
    """Functions and types among the words that are in none of the files."""
    text = "".join(p.read_text() for path in paths for p in files_of(root, path))
    names = [w.removesuffix("()") for w in words if re.fullmatch(r"[A-Za-z_]\w*(::\w+)*(\(\))?", w)]
    return [f"{place}: `{name}` is not in {', '.join(paths) or 'any file'}" for name in names
            if not all(re.search(rf"\b{part}\b", text) for part in name.split("::"))]


def names_in(code):
    """The functions and types in a piece of code: `f`, `A::f()`, and f and g of `f(g(x), y)`."""
    name = r"[A-Za-z_]\w*(?:::\w+)*"
    return [code] if re.fullmatch(name, code) else re.findall(rf"{name}(?=\()|\b[A-Z]\w*[a-z]\w*(?:::\w+)*", code)


def strange_names(root):
    """Names in docs/architecture.md that are not in the library's code, comments excluded."""
    lines = (line for p in files_of(root, LIBRARY) for line in p.read_text().splitlines())
    known = set(re.findall(r"\w+", "\n".join(line.split("//")[0] for line in lines)))
    codes = [c for c in in_backticks((root / "docs/architecture.md").read_text()) if not paths_in(c)]
    return [f"docs/architecture.md: `{name}` is not in {LIBRARY}"
            for name in sorted({n for code in codes for n in names_in(code)}) if not known.issuperset(name.split("::"))]


def wrong_path_table(root, page):
    rows = table(section(page, PATH_SECTION))
    wrong = [] if rows else [f"{PATH_PAGE}: no table under '{PATH_SECTION}'"]
    for number, cells in enumerate(rows, 1):
        place = f"{PATH_PAGE}, path of x, step {number}"
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
    """Each paragraph or list is one answer with up to four files. A name belongs to the file mentioned before it."""
    place, wrong, total = f"{PATH_PAGE}, '{REASON_SECTION.strip('# ')}'", [], 0
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


def wrong_steady_table(root, page):
    """Each row has a function, its file, and a description."""
    place, rows = f"docs/architecture.md, '{STEADY_SECTION.strip('# ')}'", table(section(page, STEADY_SECTION))
    functions, files = [in_backticks(row[0])[0] for row in rows], [in_backticks(row[1])[0] for row in rows]
    wrong = [] if rows else [f"{place}: no table"]
    wrong += [f"{place}: {len(functions)} functions, at most 12"] if len(functions) > 12 else []
    wrong += [f"{place}: {len(set(files))} files, at most 5"] if len(set(files)) > 5 else []
    return wrong + [fault for name, path in zip(functions, files)
                    for fault in unknown_names(root, place, [path], [name])]


def wrong_ledger_table(root, page):
    """Each row has a ledger line and up to four files, each followed by its functions."""
    place, rows = f"docs/architecture.md, '{LEDGER_SECTION.strip('# ')}'", table(section(page, LEDGER_SECTION))
    wrong = [] if rows else [f"{place}: no table"]
    for line, answer in rows:
        path, named = None, {}
        for code in in_backticks(answer):
            if PATH.match(code):
                path = code
                named.setdefault(path, [])
            else:
                named[path].append(code)
        wrong += [f"{place}: {line}: {len(named)} files, 1 to 4"] if not 1 <= len(named) <= 4 else []
        wrong += [fault for path, words in named.items() for fault in unknown_names(root, place, [path], words)]
    return wrong


def differences(place, said, so, what):
    """A fault for the first position at which two lists differ."""
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
    said = table(section((root / "docs/conflicts.md").read_text(), "## Table of collectives"))
    return differences("docs/conflicts.md, table of collectives", [" | ".join(r) for r in said], so, "row")


def main(root):
    root = Path(root)
    guide = (root / PATH_PAGE).read_text()
    wrong = (missing_paths(root) + wrong_path_table(root, guide) + wrong_reason_paragraphs(root, guide) +
             wrong_components(root, "sharding") + wrong_components(root, "nn") + wrong_collectives(root) +
             strange_names(root))
    architecture = (root / "docs/architecture.md").read_text()
    wrong += wrong_steady_table(root, architecture) + wrong_ledger_table(root, architecture)
    print("\n".join(wrong + [f"{len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
