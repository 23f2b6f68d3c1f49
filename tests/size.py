"""Prints the size of the library, and fails above its limits: lines of code, small files, files of a folder.

    size.py ROOT

A line of code is neither blank nor only a comment. The library is sharding/, nn/, optim/ and data/.
"""
import sys
from collections import Counter
from pathlib import Path

FOLDERS = ("sharding", "nn", "optim", "data")
MAX_CODE, MAX_SMALL_FILES, MAX_FILES_OF_A_FOLDER = 50_500, 60, 60
SMALL = 30  # lines


def code_lines(text):
    lines, in_comment = 0, False
    for line in text.splitlines():
        line = line.strip()
        if in_comment:
            in_comment = "*/" not in line
        elif line.startswith("/*"):
            in_comment = "*/" not in line
        elif line and not line.startswith("//"):
            lines += 1
    return lines


def main():
    root = Path(sys.argv[1])
    files = [p for folder in FOLDERS for kind in ("h", "cpp", "cu") for p in (root / folder).rglob(f"*.{kind}")]
    code = {folder: sum(code_lines(p.read_text()) for p in files if p.is_relative_to(root / folder))
            for folder in FOLDERS}
    small = [p for p in files if len(p.read_text().splitlines()) <= SMALL]
    folder, most = Counter(p.parent for p in files).most_common(1)[0]
    print(f"lines of code: {sum(code.values())} of {MAX_CODE} (" +
          ", ".join(f"{name} {n}" for name, n in code.items()) + ")")
    print(f"files of at most {SMALL} lines: {len(small)} of {MAX_SMALL_FILES}")
    print(f"files of one folder: at most {most} of {MAX_FILES_OF_A_FOLDER} ({folder.relative_to(root)})")
    return sum(code.values()) > MAX_CODE or len(small) > MAX_SMALL_FILES or most > MAX_FILES_OF_A_FOLDER


if __name__ == "__main__":
    sys.exit(main())
