"""What the tutorials that four pages retell print, these pages print: the same numbers, shapes and devices.

    printed_test.py ROOT

Of reference/seeds_examples.json it reads what JAX computed in these tutorials, with tolerances, and what they state
themselves ("documented"); the tutorials' drawings and words are in the table below. A page prints what stands in its
blocks of output, which docs_test.py compares with the programs.
"""
import json
import re
import sys
from pathlib import Path

PAGES = {"000": "equinox", "001": "spmd", "002": "sharded_computation", "003": "scaling_up"}
DOCUMENTED = 6e-7  # up to which the tutorials' own numbers are those of exact arithmetic

# Of each page: the device names of a drawing in its order, and words.
DRAWINGS = {
    "equinox": [["0", "1"]],
    "spmd": [],
    "sharded_computation": [["0"], ["0", "1", "2", "3", "6", "7", "4", "5"], ["0,6", "1,7", "2,4", "3,5"]],
    "scaling_up": [["0,1", "2,3", "4,5", "6,7"]],
}
WORDS = {
    "equinox": [],
    "spmd": ["data=4, model=2: 8 devices", "data=8: 8 devices", "data=2, model=2, pipeline=2: 8 devices",
             "400 MB on each device, 3200 MB in all", "50 MB on each device, 400 MB in all"],
    "sharded_computation": ["NamedSharding(mesh=Mesh('x': 2, 'y': 4), spec=P('x', 'y'))", "shardings match: true",
                            "global shape: (32)", "device local shape: (4)"],
    "scaling_up": ["P(None, 'model')", "P('data')"],
}
# What the tutorials print as whole arrays, by example and name in the file.
PRINTED = [("intro.shard_map_elementwise", "result"), ("intro.layer", "layer"),
           ("intro.layer", "layer of sharded inputs"), ("intro.layer", "layer_auto"), ("intro.layer", "layer_sharded")]


def output_of(page):
    return "\n".join(re.findall(r"^```(?:text|console|json)\n(.*?)^```", page.read_text(), re.S | re.M))


def numbers_in(text):
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?", text)]


def has_numbers(text, wanted, tolerance):
    found = numbers_in(text)
    return any(all(abs(a - b) <= tolerance for a, b in zip(found[i:], wanted))
               for i in range(len(found) - len(wanted) + 1))


def has_drawing(text, wanted):
    found = re.findall(r"CPU ([\d,]+)", text)
    return any(found[i:i + len(wanted)] == wanted for i in range(len(found)))


def documented(name, value, text):
    """(what, whether it is there) of everything that a tutorial states under this name."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from documented(f"{name}, {key}", part, text)
    elif isinstance(value, str):  # sentences about memory, which the words of the page say
        return
    elif "each device" in name:
        yield f"{name} {value}", f"({', '.join(map(str, value))})" in text
    else:
        wanted = value if isinstance(value, list) else [value]
        yield f"{name} {wanted}", has_numbers(text, wanted, DOCUMENTED)


def main(root):
    examples = json.load(open(Path(root) / "tests/reference/seeds_examples.json"))["examples"]
    text = {page: output_of(Path(root) / f"docs/{page}.md") for page in PAGES.values()}
    checks = []
    for example in examples:
        page = PAGES[example["seed"][:3]]
        for name, value in example.get("documented", {}).items():
            checks += [(page, *check) for check in documented(name, value, text[page])]
        for name, value in example.get("values", {}).items():
            if (example["id"], name) in PRINTED:
                is_there = has_numbers(text[page], value["value"], value["tolerance"])
                checks.append((page, f"{example['id']} {name} {value['value']}", is_there))
    for page in PAGES.values():
        checks += [(page, f"a drawing of devices {d}", has_drawing(text[page], d)) for d in DRAWINGS[page]]
        checks += [(page, f'"{words}"', words in text[page]) for words in WORDS[page]]
    missing = [f"docs/{page}.md does not print: {what}" for page, what, is_there in checks if not is_there]
    print("\n".join(missing))
    print(f"{len(checks)} values of {len(PAGES)} tutorials, {len(missing)} missing")
    return 1 if missing or {page for page, *_ in checks} != set(PAGES.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
