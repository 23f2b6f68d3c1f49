"""Checks that public names are documented: each declaration at namespace scope of an installed header has a comment.

    names_test.py ROOT [HEADER...]

A declaration is documented by
- the comment right above it or on its own line,
- the comment of a declaration that it follows without an empty line (a group),
- another documented declaration of its name in the header,
- for a type, such as options: a documented declaration of the header that uses it.
Not checked: namespaces named detail or internal, forward declarations (class Array;), instantiations and assertions.

Also checks that names that the manual writes with their namespace exist, and that the manual explains every error kind.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "docs/site"))
from declarations import TYPE, blanked, declarations, name_of  # noqa: E402

FOLDERS = ("sharding", "nn", "optim", "data")
# Headers whose first comment describes all their names: functions of another library with the same names.
NAMED_AFTER = {
    "sharding/operations/shape/creation.h": "jax.numpy",
    "sharding/operations/elementwise/elementwise.h": "jax.numpy",
    "optim/optimizer/optimizers.h": "Optax",
}


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
    """Names that the manual writes with their namespace, and that no header of this folder declares."""
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
            if f"\n### `{kind}`\n" not in page]


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
