"""Finds words and sentence openings that CONTRIBUTING.md bans: in documentation, comments and messages.

    text_lint.py ROOT            prints the findings of all files
    text_lint.py ROOT FILE...    prints the findings of these files
    text_lint.py --self-test

Reads the prose of README.md, CONTRIBUTING.md, SECURITY.md and docs/, the comments of sources and scripts, and the
string literals of the library and the examples. Code in backticks and blocks of code are not prose.
"""
import re
import sys
from pathlib import Path

LIBRARY = ("sharding/", "nn/", "optim/", "data/", "examples/")
FOLDERS = (*LIBRARY, "tests/", "docs/")
SKIPPED = ("CHANGELOG.md", "tests/text_lint.py")

OPENING = re.compile(r"""(?:\A|[.!?:]["')*\]]*\s+|\n\s*\n|(?:\A|\n)[ ]*(?:[-*>]|\#+|\d+\.)[ ]|\|)\s*["(*]*
                         (What|Whatever|Who|Whose|Of|Where)\b(?!\ course)""", re.X)
REST = re.compile(r"""(.*?)(?:[.!](?=\s|\Z)|\?|\||\n\s*\n|\Z)""", re.S)
BANNED = [(re.compile(rf"\b(?:{words})\b", re.I), instead) for words, instead in [
    (r"beside", "next to, compared with, or concurrently with"),
    (r"mended", "fixed"),
    (r"anew", "again"),
    (r"whoever", "the noun: the process that, the caller that"),
    (r"thereby|wherein", "a new sentence"),
    (r"likewise|alike", "also, in the same way, or both"),
    (r"(?:of )?one's own", "custom"),
    (r"from nothing", "from scratch"),
    (r"in vain", "without a result, or: until the timeout"),
    (r"go(?:es)? on(?! (?:the|an?|to a)\b)", "continues or resumes"),
    (r"(?:is|are|was|were) told", "receives, or is passed"),
    (r"tells? of|knows? of", "reports, refers to, or depends on"),
    (r"says? so", "reports it, or documents it"),
    (r"has it that", "specifies"),
    (r"no less|nothing but", "only, exactly, or at least"),
    (r"(?:lies?|lay|lying) (?:on|in|at|there|elsewhere)", "is stored on, is placed on, or is sharded over"),
    (r"stands? (?:in(?! for)|there|below|above)", "is in, or follows"),
    (r"(?<!no )rooms?(?! (?:for|to|left)\b)", "component"),
    (r"doors?", "umbrella header"),
    (r"houses?", "the library, the rules, or the layering lint"),
    (r"ladders?", "the order of components"),
    (r"kin", "the related functions, by name"),
    (r"neighbours?|neighbouring", "neighbor (of a device), or the related component by name"),
]]


def kept(match):
    """Blanks of the same shape."""
    return re.sub(r"[^\n]", " ", match[0])


def cpp_units(text, has_messages):
    """(line, text) of each block of comments and, in the library, of each message."""
    token = r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z])\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/'
    units = []
    for match in re.finditer(token, text, re.S):
        line = text.count("\n", 0, match.start()) + 1
        if match[0].startswith("//"):
            words = re.sub(r"^   .*", "", match[0].lstrip("/"))  # an indented line is an example
            alone = not text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip()
            if alone and units and units[-1][2] == line - 1:
                units[-1] = (units[-1][0], units[-1][1] + "\n" + words, line)
            else:
                units.append((line, words, line if alone else 0))
        elif match[0].startswith("/*"):
            units.append((line, match[0].strip("/*"), 0))
        elif has_messages and '"' in match[0] and " " in match[0]:
            units.append((line, match[0].strip('"').replace("\\n", "  "), 0))
    return [(line, words) for line, words, _ in units]


def script_units(text):
    """The docstrings and comments of Python, CMake and shell."""
    units = [(text.count("\n", 0, m.start(1)) + 1, m[1]) for m in re.finditer(r'^[ ]*"""(.*?)"""', text, re.S | re.M)]
    for match in re.finditer(r"(?:^[ ]*#[ ][^\n]*\n?)+|(?<=\s)#[ ][^\n]*", text, re.M):
        words = re.sub(r"^[ ]*#", "", match[0], flags=re.M)
        units.append((text.count("\n", 0, match.start()) + 1, words))
    return units


def units_of(name, text):
    if name.endswith(".md"):
        return [(1, re.sub(r"^[ ]*```.*?^[ ]*```|<!--.*?-->", kept, text, flags=re.S | re.M))]
    if name.endswith((".h", ".cpp", ".cu")):
        return cpp_units(text, name.startswith(LIBRARY))
    return script_units(text)


def findings(name, text):
    """(line, words, what to write instead), in the order of the lines."""
    found = []
    for first, words in units_of(name, text):
        words = re.sub(r"`[^`]*`", lambda m: re.sub(r"[^\n]", "x", m[0]), words)
        for match in OPENING.finditer(words):
            rest = REST.match(words, match.end())
            # A question is allowed, and "Where x, y" is a condition.
            if not rest[0].endswith("?") and not (match[1] == "Where" and "," in rest[1]):
                line = first + words.count("\n", 0, match.start(1))
                quoted = " ".join(words[match.start(1):match.end(1) + 30].split())
                found.append((line, quoted, "the subject first"))
        for pattern, instead in BANNED:
            found += [(first + words.count("\n", 0, m.start()), m[0], instead) for m in pattern.finditer(words)]
    return sorted(found)


def text_files(root):
    paths = [*root.glob("*"), *(p for folder in FOLDERS for p in (root / folder).rglob("*"))]
    named = [(p.relative_to(root).as_posix(), p) for p in sorted(paths) if p.is_file()]
    suffixes = (".md", ".h", ".cpp", ".cu", ".py", ".cmake", ".sh", "CMakeLists.txt")
    return [name for name, _ in named if name.endswith(suffixes) and name not in SKIPPED]


def report(root, names):
    found = [(name, *f) for name in names for f in findings(name, (root / name).read_text(errors="replace"))]
    return [f'{name}:{line}: "{words}": write {instead}' for name, line, words, instead in found]


def main(root, *files):
    root = Path(root)
    names = [Path(f).resolve().relative_to(root.resolve()).as_posix() for f in files] or text_files(root)
    lines = report(root, names)
    print("\n".join([*lines, f"{len(names)} files, {len(lines)} findings"]))
    return 1 if lines or not names else 0


def self_test():
    """(file, text, lines with findings)"""
    cases = [
        ("docs/a.md", "# What it costs\n\nIt is fast. Of two\nrows, one. What is it?\n\n```cpp\n// anew\n```\n`anew`\n",
         [1, 3]),
        ("docs/a.md", "| a | Who waits |\n\n- Whose it is\n- Where x is set, y is.\n- Where it is\n- Of course\n",
         [1, 3, 5]),
        ("docs/a.md", "A room of the library. There is room for two. It lies in\nmemory. The lies table.\n", [1, 1]),
        ("nn/a.h", "// Batches.\n// What goes.\nint of = 1;  // Of x\n//   auto x = anew;\nf(\"said it anew\");\n",
         [2, 3, 5]),
        ("tests/a.cpp", 'f("say it anew");  // plain\n/* beside\n */\n', [2]),
        ("tests/a.py", '"""What it is.\n\nSo alike.\n"""\n# Whoever\nx = "beside"  # in vain\n', [1, 3, 5, 6]),
        ("CMakeLists.txt", "# Only this.\nset(anew 1)  # neighbours\n", [2]),
    ]
    wrong = [f"{name}: {text!r}: {findings(name, text)}, expected lines {lines}" for name, text, lines in cases
             if [line for line, *_ in findings(name, text)] != lines]
    print("\n".join([*wrong, f"{len(cases)} texts, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else main(*sys.argv[1:]))
