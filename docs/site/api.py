"""Pages of the API reference, in Markdown, from the comments of the public headers.

    api.py ROOT OUT     writes OUT/<page>.md and OUT/index.md

A page is a folder of headers. A symbol is listed with its declaration and its comment. Bodies, private members and the
overloads that exist only to explain a mistake at compile time are left out.
"""
import re
import sys
from pathlib import Path

from declarations import TYPE, blanked, declarations, name_of

# The pages in their order: the folder of headers, its title.
PAGES = {
    "sharding/array": "Arrays",
    "sharding/placement": "Meshes, shardings and mesh rules",
    "sharding/redistribution": "Placing and resharding",
    "sharding/operations": "Operations",
    "sharding/random": "Random numbers",
    "sharding/autodiff": "Automatic differentiation",
    "sharding/shard_map": "shard_map and collectives",
    "sharding/accounting": "Communication ledger, guards and forecasts",
    "sharding/runtime": "Processes and devices",
    "sharding/base": "Errors and the environment",
    "sharding/files": "Files",
    "sharding/kernels": "CPU memory",
    "nn/tree": "Trees",
    "nn/placement": "Placing models",
    "nn/layers": "Layers",
    "nn/transformations": "Transformations",
    "nn/models": "Models",
    "nn/checkpoint": "Checkpoints",
    "nn/report": "Reports and profiles",
    "optim/optimizer": "Optimizers",
    "optim/formulas": "Update formulas",
    "optim/schedules": "Schedules and losses",
    "optim/transform": "Gradient transformations",
    "optim/wrappers": "Wrappers of optimizers",
    "data/datasets": "Datasets",
    "data/loader": "Loader",
    "data/streams": "Streams",
    "data/sources": "Sources of data",
    "data/batches": "Batches",
    "data/text": "Tokenizers",
}
# Headers that users of the library do not call: parts of other headers, and what extensions of the library use.
INTERNAL = re.compile(r"_impl\.h|once_ptr|tape\.h|/(plan|run|attributes|tensors|loader_core|stream_plan|internal)\.h")


def public_headers(root):
    """The installed headers of each page; umbrella headers are not listed."""
    headers = {page: [] for page in PAGES}
    for component in ("sharding", "nn", "optim", "data"):
        lists = re.findall(r"HEADERS\s(.*?)\s[A-Z_]{3,}\b", Path(root, component, "CMakeLists.txt").read_text(), re.S)
        for name in re.findall(r"\S+\.h", " ".join(lists)):
            page = "/".join([component, *name.split("/")[:1]])
            if "/" in name and page in headers and not INTERNAL.search("/" + name):
                headers[page].append(f"{component}/{name}")
    return headers


def comment_above(lines, alone, first):
    begin = first
    while begin - 1 in alone:
        begin -= 1
    return [re.sub(r"^\s*// ?", "", line) for line in lines[begin - 1:first - 1]]


def is_trap(comment, source):
    """An overload whose only purpose is a readable compile-time error."""
    return "= delete" in source or re.match(r"(?:A m|M)istakes?\b|Diagnostics? ", " ".join(comment)) is not None


def without_body(source):
    """A function without its body and its initializers."""
    code = blanked(source)[0].rstrip()
    if not code.endswith("}") or not re.search(r"\)[^;{}]*\{", code):
        return source.rstrip()
    depth, position = 0, len(code)
    while position:
        position -= 1
        depth += {"}": 1, "{": -1}.get(code[position], 0)
        if not depth:
            break
    head = re.sub(r"\)\s*(noexcept)?\s*:\s[^:].*$", r")", source[:position].rstrip(), flags=re.S)
    return head.rstrip() + ";"


def interface(source):
    """A type with its public members, their comments and no bodies."""
    code = blanked(source)[0]
    opening, end = code.find("{"), code.rfind("}")
    if opening < 0 or re.match(r"(template\s*<.*>\s*)?(enum|concept)\b", code, re.S):
        return source.rstrip()
    body = source[opening + 1:end]
    head, access = source[:opening + 1], "private" if re.search(r"\bclass\s+\w+[^;]*$", code[:opening]) else "public"
    blank, alone, _ = blanked(body)
    lines, kept, last = body.splitlines(), [], 0
    for member, first, until in declarations(blank):
        label = re.match(r"(public|private|protected)\s*:\s*", member)
        if label:
            access = label[1]
            first += member[:label.end()].count("\n")
        comment = comment_above(lines, alone, first)
        text = "\n".join(lines[first - 1:until])
        text = re.sub(r"^\s*(public|private|protected):\s*\n?", "", text)
        friend = re.match(r"\s*friend\b(?!.*operator)", text)
        if access == "public" and not friend and not is_trap(comment, text) and text.strip():
            start = first - len(comment)
            kept += [""] if kept and start > last + 1 else []
            kept += [*lines[start - 1:first - 1], *without_body(text).splitlines()]
        last = until
    return "\n".join([head, *kept, "};"]) if kept else head.rstrip("{ ") + ";"


def groups(text):
    """(comment, declarations, names) of each documented group of a header, in its order."""
    code, alone, _ = blanked(text)
    lines, found, last = text.splitlines(), [], -9
    for declaration, first, until in declarations(code):
        name = name_of(declaration)
        comment = comment_above(lines, alone, first)
        source = "\n".join(lines[first - 1:until])
        of_member = re.search(r"\w+(<[^()]*>)?::~?\w+$", re.split(r"[({;]", declaration, maxsplit=1)[0].strip())
        is_listed = name and not of_member and not declaration.startswith("using namespace")
        if is_listed and not is_trap(comment, source):
            shown = interface(source) if TYPE.search(declaration) else without_body(source)
            if not comment and found and last >= first - 1:
                found[-1][1].append(shown)
                found[-1][2].append(name)
            else:
                found.append((comment, [shown], [name]))
        last = until
    return found


def prose(comment, link):
    """A comment as Markdown: indented lines are an example or, after a line "Errors", a list."""
    out, example, paragraph, listed = [], [], [], False

    def close():
        if paragraph:
            out.append(link(" ".join(paragraph)))
        if example:
            language = "cpp" if any(line.endswith((";", "{", "}", ")")) for line in example) else "text"
            out.extend(["", f"```{language}", *example, "```", ""])
        paragraph.clear(), example.clear()

    for line in comment:
        indented = re.match(r"^ {2,}\S", line)
        if re.match(r"Errors?:?$", line.strip()):
            close()
            out += ["", "**Errors**", ""]
            listed = True
        elif listed and indented and (indented[0][2] != " " or not paragraph):
            close()
            paragraph.append("- " + line.strip())
        elif listed and indented:
            paragraph.append(line.strip())
        elif indented:
            if not example:
                close()
            example.append(line[2:])
        elif not line.strip() or line.startswith("- ") or example or listed:
            close()
            out += [""] if listed or not line.strip() else []
            listed = False
            paragraph += [line] if line.strip() else []
        else:
            paragraph.append(line)
    close()
    return "\n".join(out)


def anchor(page, name):
    return "api-" + re.sub(r"\W+", "-", f"{page.split('/')[0]}-{name}").lower().strip("-")


def escaped(text):
    return re.sub(r"([\\*_<>\[\]#$|~^{}])", r"\\\1", text)


def end_of_expression(text, match):
    """The end of a name with the calls that follow it directly: f(x)(y), or of {.option = value}."""
    end = match.end() - (match[0] == "{")
    while end < len(text) and text[end] in "({":
        depth, i = 0, end
        while i < len(text):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[i], 0)
            i += 1
            if not depth:
                break
        if depth:  # it ends on another line
            break
        end = i
    return max(end, match.end())


def linker(targets, here):
    """Escapes a line of prose and links the public names in it."""

    def link(line):
        parts = re.split(r"(`[^`]*`)", line)
        return "".join(part if part.startswith("`") else named(part) for part in parts)

    def named(text):
        out, position = [], 0
        for match in re.finditer(r"(?:\w+::)*[A-Za-z_]\w*|\{(?=\.\w)", text):
            if match.start() < position:
                continue
            word = text[match.start():end_of_expression(text, match)]
            name = re.match(r"(?:\w+::)*(\w*)", word)[1]
            special = re.search(r"[_(:{]", word) or re.match(r"[A-Z]\w*[a-z]\w*[A-Z]", name)
            is_link = special and targets.get(name, here) != here
            out += [escaped(text[position:match.start()]),
                    f"[`{word}`](#{targets[name]})" if is_link else f"`{word}`" if special else word]
            position = match.start() + len(word)
        return "".join(out) + escaped(text[position:])

    return link


def main(root, out):
    root, out = Path(root), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    pages, targets, count = {}, {}, 0
    for page, headers in public_headers(root).items():
        pages[page] = [(header, groups((root / header).read_text())) for header in headers]
        for _, all_groups in pages[page]:
            for _, _, names in all_groups:
                for name in names:
                    targets.setdefault(name, anchor(page, name))
    used = set()
    for page, headers in pages.items():
        component, folder = page.split("/")
        lines = [f"# {PAGES[page]}", "", "```cpp", f"#include <tessera/{component}/{folder}.h>", "```", ""]
        for header, all_groups in headers:
            if not all_groups:
                continue
            title = Path(header).stem.replace("_", " ").capitalize()
            intro = re.match(r"((?://[^\n]*\n)*)", (root / header).read_text())[1].splitlines()
            intro = [re.sub(r"^// ?", "", line) for line in intro]
            lines += ["", f"## {title}", "", prose(intro, linker(targets, "")), "", f"Header: `{header}`", ""]
            for comment, shown, names in all_groups:
                unique = list(dict.fromkeys(names))
                count += len(unique)
                for name in unique:
                    if anchor(page, name) not in used:
                        used.add(anchor(page, name))
                        lines.append(f"({anchor(page, name)})=")
                heading = ", ".join(f"`{name}`" for name in unique[:6]) + (", ..." if len(unique) > 6 else "")
                lines += ["", f"### {heading}", "", "```cpp", *"\n".join(shown).splitlines(), "```", "",
                          prose(comment, linker(targets, anchor(page, unique[0]))), ""]
        (out / f"{component}_{folder}.md").write_text("\n".join(lines))
    index = ["# API reference", "", "Generated from the comments of the public headers. Use the search to find a name.", "",
             "```{toctree}", ":maxdepth: 1", "", *(page.replace("/", "_") for page in pages), "```", ""]
    (out / "index.md").write_text("\n".join(index))
    print(f"{count} symbols on {len(pages)} pages")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
