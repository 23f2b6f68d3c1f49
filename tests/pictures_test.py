"""Compares the pictures in docs/pictures/ with the output of the script that draws them.

    pictures_test.py ROOT
"""
import subprocess
import sys
import tempfile
from pathlib import Path


def svg_files(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.svg"))}


def main(root):
    pictures = Path(root) / "docs/pictures"
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, str(pictures / "draw.py"), scratch], check=True)
        committed, drawn = svg_files(pictures), svg_files(scratch)
    wrong = [name for name in sorted(committed | drawn) if committed.get(name) != drawn.get(name)]
    for name in wrong:
        print(f"docs/pictures/{name} differs from the output of draw.py. Run python3 docs/pictures/draw.py.")
    return 1 if wrong or not drawn else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
