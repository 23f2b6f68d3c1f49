"""Builds the site of the manual.

    build.py [OUT]              installs what is missing, builds, and prints the first page; OUT is build/site
    build.py --install [OUT]    installs the pinned packages of requirements.txt into OUT/packages
    build.py --offline [OUT]    builds without an installation; without the packages the status is 77

Writes the API reference and runs Sphinx on README.md and docs/*.md. A warning of Sphinx is an error.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import api

ROOT = Path(__file__).resolve().parents[2]
# The pages in the order of the navigation.
SECTIONS = {
    "Learn": ["install", "start", "sharding_in_pictures", "training", "models", "chat", "processes", "from_python"],
    "How-to": ["recipes", "strategies", "scaling_up", "pipelines", "memory", "debugging", "sharp_edges", "checkpoints",
               "long_runs", "data", "data_text", "data_streams", "losses", "gpus", "report", "twenty_pains"],
    "Concepts": ["modules", "arrays", "conflicts", "rules", "gradients", "randomness", "shard_map",
                 "custom_operations", "abstract_meshes", "layers", "optimizers", "glossary"],
    "Reference": ["compatibility", "headers", "command_line", "errors", "operations", "jax_differences"],
    "Internals": ["architecture", "operation_path", "performance", "gpu_tests", "adding", "adding_engines", "testing"],
}


def environment(out):
    return {**os.environ, "PYTHONPATH": f"{out / 'packages'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def has_packages(out):
    command = [sys.executable, "-c", "import sphinx, myst_parser, furo"]
    return subprocess.run(command, env=environment(out), capture_output=True).returncode == 0


def install(out):
    requirements = Path(__file__).parent / "requirements.txt"
    return subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--target",
                           out / "packages", "-r", requirements]).returncode


def stage(source):
    """Copies the repository, with README.md as the first page and the navigation below it."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT, source, ignore=lambda folder, names: {
        name for name in names if name.startswith(".") or (name == "build" and Path(folder) == ROOT)})
    lines = [(source / "README.md").read_text(), ""]
    for section, pages in SECTIONS.items():
        lines += ["```{toctree}", ":hidden:", f":caption: {section}", "", *(f"docs/{page}" for page in pages)]
        lines += {"Reference": ["api/index"], "Internals": ["CONTRIBUTING", "SECURITY", "CHANGELOG"]}.get(section, [])
        lines += ["```", ""]
    (source / "index.md").write_text("\n".join(lines))
    (source / "README.md").unlink()
    for page in source.glob("docs/*.md"):
        page.write_text(page.read_text().replace("](../README.md", "](../index.md"))


def check_pages():
    listed = {page for pages in SECTIONS.values() for page in pages}
    found = {page.stem for page in (ROOT / "docs").glob("*.md")}
    return [f"docs/{page}.md is in no section of docs/site/build.py" for page in sorted(found - listed)] + [
        f"docs/{page}.md does not exist; docs/site/build.py lists it" for page in sorted(listed - found)]


def main(*arguments):
    options = [argument for argument in arguments if argument.startswith("--")]
    out = Path(next((a for a in arguments if not a.startswith("--")), ROOT / "build/site")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if not has_packages(out):
        if options == ["--offline"]:
            print("SKIPPED: Sphinx is not installed. Run docs/site/build.py --install")
            return 77
        if install(out):
            return 1
    if options == ["--install"]:
        return 0
    wrong = check_pages()
    if wrong:
        print("\n".join(wrong))
        return 1
    stage(out / "source")
    if api.main(ROOT, out / "source/api"):
        return 1
    status = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", "-c",
                             Path(__file__).parent, out / "source", out / "html"], env=environment(out)).returncode
    print(out / "html/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
