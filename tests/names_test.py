"""No public name without a word: every declaration at namespace scope of an installed header has a comment.

    names_test.py ROOT [HEADER...]

A declaration is documented by the comment right above it, by one on a line of its own, or by that of a declaration that
it follows without an empty line (a group); by another declaration of its name in the header; and a type, options say,
by a documented declaration of the header that names it. Namespaces named detail or internal are nobody's business;
neither are declarations that another one completes (class Array;), instantiations and assertions.

And the other way round: names that the manual writes with their namespace exist, and it explains every kind of error.
"""
import re
import sys
from pathlib import Path

FOLDERS = ("sharding", "nn", "optim", "data")
PRIVATE = {"detail", "internal", ""}

TYPE = re.compile(r"^(template\s*<.*>\s*)?(struct|class|enum)\b", re.S)

# Headers whose first comment says what every name in them is: another library's function of that name.
NAMED_AFTER = {
    "sharding/operations/shape/creation.h": "jax.numpy",
    "sharding/operations/elementwise/elementwise.h": "jax.numpy",
    "optim/optimizer/optimizers.h": "Optax",
}


def blanked(text):
    """The text with comments and literals blanked, and the lines that hold a comment, alone or beside code."""
    comment, raw = r"//[^\n]*|/\*.*?\*/", r'R"(\w*)\(.*?\)\1"'
    string, character = r'"(?:\\.|[^"\\\n])*"', r"(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])*'"
    pattern = re.compile("|".join([comment, raw, string, character]), re.S)
    alone, beside = set(), set()

    def blank(match):
        if match[0].startswith(("//", "/*")):
            first = text.count("\n", 0, match.start()) + 1
            begin = text.rfind("\n", 0, match.start()) + 1
            lines = range(first, first + match[0].count("\n") + 1)
            words = re.sub(r"[-/*=\s]", "", match[0])
            if text[begin:match.start()].strip():
                beside.update(lines)
            elif words and not re.match(r"//\s*-{3,}", match[0]):
                alone.update(lines)
            return re.sub(r"[^\n]", " ", match[0])
        return '"' + re.sub(r"[^\n]", "s", match[0][1:-1]) + '"'

    return pattern.sub(blank, text), alone, beside


def declarations(code):
    """Yields (text, first line, last line) of what is declared at namespace scope outside of private namespaces."""
    code = re.sub(r"^[ \t]*#[^\n]*(\\\n[^\n]*)*", lambda m: re.sub(r"[^\n]", " ", m[0]), code, flags=re.M)
    scopes, position, start = [], 0, 0
    while position < len(code):
        c = code[position]
        if c == "{":
            head = code[start:position]
            space = re.fullmatch(r"\s*(?:inline\s+)?namespace\s*([\w:]*)\s*", head)
            if space:
                scopes.append(space[1].split("::")[-1])
                start = position + 1
            else:
                position = closing(code, position)
                after = re.match(r"\s*;", code[position + 1:])
                # The body of a function ends its declaration; an initializer or a type goes on to the semicolon.
                if after or not continues(code, position + 1, head):
                    position += after.end() if after else 0
                    yield from found(code, start, position + 1, scopes)
                    start = position + 1
        elif c == "}":
            scopes.pop()
            start = position + 1
        elif c == ";":
            yield from found(code, start, position + 1, scopes)
            start = position + 1
        elif c in "([":
            position = closing(code, position)
        position += 1


def continues(code, position, head):
    """Whether the declaration goes on behind a brace: a default or an initializer in braces, a variable."""
    rest = code[position:].lstrip()
    function = re.search(r"\)\s*(const|noexcept|override|->.*)*\s*$", head, re.S)
    body = function or re.search(r"\b(struct|class|enum|union)\b", head)
    return not body and bool(rest) and rest[0] in ",;)(>{&|="


def closing(code, position):
    pairs = {"{": "}", "(": ")", "[": "]"}
    stack = []
    for i in range(position, len(code)):
        if code[i] in pairs:
            stack.append(pairs[code[i]])
        elif stack and code[i] == stack[-1]:
            stack.pop()
            if not stack:
                return i
    return len(code) - 1


def found(code, start, end, scopes):
    text = code[start:end]
    if not text.strip(" \n\t;") or any(scope in PRIVATE for scope in scopes):
        return
    begin = start + len(text) - len(text.lstrip())
    yield text.strip(), code.count("\n", 0, begin) + 1, code.count("\n", 0, end) + 1


def name_of(text):
    """The declared name, or None for what is no public name of its own."""
    if re.match(r"(template\s*<>|static_assert|extern template|namespace|using namespace|friend)\b", text):
        return None
    text = re.sub(r"\[\[.*?\]\]", "", without_template_head(text)).strip()
    if re.match(r"(struct|class|enum|union)(\s+class)?\s+\w+\s*(:[^{]*)?;$", text):
        return None  # completed elsewhere
    if re.fullmatch(r"template\s.*;", text, re.S) or "template <" in text[:10]:
        return None
    match = re.match(r"using\s+([\w:]+)", text)
    if match:
        return match[1].split("::")[-1]
    match = re.match(r"(?:struct|class|enum class|enum|union|concept)\s+(\w+(?:<[^{;]*>)?)", text)
    if match:
        return None if "<" in match[1] else match[1]  # a specialization is its template's
    text = re.sub(r"operator\s*\(\)", "operator_call", text.replace("operator==", "operator_eq"))
    head = re.split(r"[({=;]", text, maxsplit=1)[0]
    match = re.search(r"(operator\s*\S+|~?\w+)\s*$", head)
    return match[1] if match else text[:40]


def without_template_head(text):
    while re.match(r"template\s*<", text):
        depth, i = 0, text.index("<")
        while i < len(text):
            depth += {"<": 1, ">": -1}.get(text[i], 0)
            if not depth:
                break
            i += 1
        text = text[i + 1:].lstrip()
        text = re.sub(r"^requires\s+[^;{]*?(?=\n\S)", "", text).lstrip() if text.startswith("requires") else text
    return text


def undocumented(path, text):
    code, alone, beside = blanked(text)
    last_line, last_documented, known, open_names, said = -1, False, set(), {}, []
    for declaration, first, last in declarations(code):
        name = name_of(declaration)
        lines = range(first, last + 1) if TYPE.search(declaration) else (first, last)
        inside = beside.union(alone).intersection(lines)
        documented = bool(first - 1 in alone or inside or (last_documented and last_line >= first - 1))
        if name and documented:
            known.add(name)
        elif name:
            open_names.setdefault(name, first)
        if documented:
            said.append(declaration)
        last_line, last_documented = last, documented
    if path in NAMED_AFTER and NAMED_AFTER[path] in text:
        return []
    words = set(re.findall(r"\w+", " ".join(said)))
    return [f"{path}:{line}: {name}" for name, line in open_names.items() if name not in known and name not in words]


def unknown_in_manual(root):
    """Names that a page of the manual writes with their namespace, and that no header of that folder has."""
    words = {folder: set(re.findall(r"\w+", " ".join(h.read_text() for h in Path(root, folder).rglob("*.h"))))
             for folder in FOLDERS}
    pages = [Path(root, "README.md"), Path(root, "CONTRIBUTING.md"), *sorted(Path(root, "docs").glob("*.md"))]
    return [f"{page.relative_to(root)}: {folder}::{name} is in no header" for page in pages
            for folder, name in sorted(set(re.findall(r"\b(nn|optim|data)::(\w+)", page.read_text())))
            if name not in words[folder]]


def unexplained_errors(root):
    """Kinds of errors that docs/errors.md does not explain."""
    kinds = re.search(r"enum class ErrorKind \{(.*?)\};", Path(root, "sharding/base/error.h").read_text(), re.S)[1]
    page = Path(root, "docs/errors.md").read_text()
    return [f"docs/errors.md does not explain `{kind}`" for kind in re.findall(r"^\s*(\w+),", kinds, re.M)
            if f"**`{kind}`**" not in page]


def main(root, *headers):
    count, missing = 0, []
    chosen = headers or sorted(str(h.relative_to(root)) for f in FOLDERS for h in Path(root, f).rglob("*.h")
                               if h.name not in ("pch.h", "internal.h"))
    for header in chosen:
        text = Path(root, header).read_text()
        count += sum(1 for declaration, _, _ in declarations(blanked(text)[0]) if name_of(declaration))
        missing += undocumented(header, text)
    wrong = unknown_in_manual(root) + unexplained_errors(root)
    print("\n".join(missing + wrong))
    print(f"{count} public names in {len(chosen)} headers, {len(missing)} undocumented")
    return 1 if missing or wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
