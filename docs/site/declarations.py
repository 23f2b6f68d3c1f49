"""Public declarations of C++ headers: a small parser for the style of this repository.

declarations(blanked(text)[0]) yields what a header declares at namespace scope outside of `detail` and `internal`.
"""
import re

PRIVATE = {"detail", "internal", ""}

TYPE = re.compile(r"^(template\s*<.*>\s*)?(struct|class|enum)\b", re.S)


def blanked(text):
    """The text with comments and literals blanked, and the lines that hold a comment, alone or after code."""
    comment, raw = r"//[^\n]*|/\*.*?\*/", r'R"(\w*)\(.*?\)\1"'
    string, character = r'"(?:\\.|[^"\\\n])*"', r"(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])*'"
    pattern = re.compile("|".join([comment, raw, string, character]), re.S)
    alone, after_code = set(), set()

    def blank(match):
        if match[0].startswith(("//", "/*")):
            first = text.count("\n", 0, match.start()) + 1
            begin = text.rfind("\n", 0, match.start()) + 1
            lines = range(first, first + match[0].count("\n") + 1)
            words = re.sub(r"[-/*=\s]", "", match[0])
            if text[begin:match.start()].strip():
                after_code.update(lines)
            elif words and not re.match(r"//\s*-{3,}", match[0]):
                alone.update(lines)
            return re.sub(r"[^\n]", " ", match[0])
        return '"' + re.sub(r"[^\n]", "s", match[0][1:-1]) + '"'

    return pattern.sub(blank, text), alone, after_code


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
                # The body of a function ends its declaration; an initializer or a type continues to the semicolon.
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
    """Whether the declaration continues after a brace: a default or an initializer in braces, a variable."""
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
