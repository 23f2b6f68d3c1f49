"""Checks the pages of the manual: links, lengths of sentences and of pages; prints the number of words.

    pages_test.py ROOT

Every relative link of README.md, CONTRIBUTING.md, CHANGELOG.md, SECURITY.md and docs/*.md leads to a file and, with
`#`, to a heading of it. A sentence has at most 35 words, a page at most 250 lines; references may be longer. All files
that have Tessera's version have the same one.
"""
import re
import sys
from pathlib import Path

MAX_WORDS, MAX_LINES = 35, 250
# Pages in which users look things up; they may be longer than MAX_LINES.
REFERENCES = {"docs/errors.md", "docs/command_line.md", "docs/operations.md", "docs/recipes.md", "docs/strategies.md",
              "docs/sharp_edges.md"}

# The files with Tessera's version, and the text before it. The Conan recipe reads it from the first one.
VERSIONS = {"CMakeLists.txt": r"^project\(tessera VERSION ", "CHANGELOG.md": r"^## ", "README.md": r"^This is version ",
            "CITATION.cff": "^version: ", "packaging/vcpkg/tessera/vcpkg.json": r'^  "version": "',
            "SECURITY.md": r"^\| the latest release, ", "packaging/Dockerfile": "^LABEL org.opencontainers.image.version="}


def different_versions(root):
    found = {}
    for name, before in VERSIONS.items():
        match = re.search(before + r"([0-9.]*[0-9])", (root / name).read_text(), re.M)
        found[name] = match and match[1]
    header = "sharding/base/version.h"
    found[header] = ".".join(re.findall(r"^#define TESSERA_VERSION_[A-Z]+ (\d+)$", (root / header).read_text(), re.M))
    version = found["CMakeLists.txt"]
    yield from (f"{name}: version {given}, expected {version} of CMakeLists.txt." for name, given in found.items()
                if given != version)


def without_code(text):
    return re.sub(r"^[ ]*```.*?^[ ]*```|<!--.*?-->", lambda m: re.sub(r"[^\n]", "", m[0]), text, flags=re.S | re.M)


def anchors(page):
    """The anchors that GitHub and the site give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.M)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).replace("`", "").replace("*", "") for h in headings)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in plain}


def broken_links(page):
    text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if "://" in target or target.startswith("mailto:"):
            continue
        if not file.exists():
            yield f"{target}: there is no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{target}: there is no such heading"


def long_sentences(page):
    """Yields (line, first words) of each sentence outside of code and tables that has too many words."""
    text = re.sub(r"<[^<>]*>", lambda m: re.sub(r"[^\n]", "", m[0]), without_code(page.read_text()))
    text = re.sub(r"^\s*\|.*$", "", text, flags=re.M)
    for match in re.finditer(r"(?:[^\n]|\n(?!\s*\n|\s*[-*>#]|\s*\d+\.\s))+", text):
        line = text.count("\n", 0, match.start()) + 1
        paragraph = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", match[0]))
        for sentence in re.split(r"(?<=[.?!:;])\s+", paragraph):
            if len(sentence.split()) > MAX_WORDS:
                yield line, " ".join(sentence.split()[:8])


def main(root):
    root = Path(root)
    pages = [*sorted(root.glob("*.md")), *sorted(root.glob("docs/*.md"))]
    manual = [page for page in pages if page.name == "README.md" or page.parent.name == "docs"]
    wrong = [*different_versions(root)]
    for page in pages:
        name = str(page.relative_to(root))
        wrong += [f"{name}: {link}" for link in broken_links(page)]
        wrong += [f"{name}:{line}: a sentence of more than {MAX_WORDS} words: {words} ..."
                  for line, words in long_sentences(page)]
        lines = len(page.read_text().splitlines())
        if lines > MAX_LINES and name not in REFERENCES:
            wrong.append(f"{name}: {lines} lines, at most {MAX_LINES} expected. Split the page by subject.")
    words = sum(len(page.read_text().split()) for page in manual)
    print("\n".join([*wrong, f"{len(manual)} pages, {words} words, {len(wrong)} faults"]))
    return 1 if wrong or not manual else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
