"""Compares the outputs on docs/sharding_in_pictures.md with the documents of JAX that it follows.

    printed_test.py ROOT

reference/seeds_examples.json has the numbers that these documents print ("documented"). SHOWN lists those
that the page prints too; tests of the examples compare the others. DRAWINGS are drawings of the documents: the devices
of each block. docs_test.py compares the outputs on the page with its program.
"""
import json
import re
import sys
from pathlib import Path

PAGE = "docs/sharding_in_pictures.md"
DOCUMENTED = 6e-7  # up to which the documents' numbers are those of exact arithmetic

SHOWN = {
    "intro.f_contract": ["result"],
    "intro.shard_map_local": ["sum per shard", "psum"],
}
DRAWINGS = [["0,1", "2,3", "4,5", "6,7"]]


def output_of(page):
    return "\n".join(re.findall(r"^```(?:text|console|json)\n(.*?)^```", page.read_text(), re.S | re.M))


def has_numbers(text, value):
    wanted = value if isinstance(value, list) else [value]
    found = [float(number) for number in re.findall(r"-?\d+(?:\.\d*)?(?:e[-+]?\d+)?", text)]
    return any(all(abs(a - b) <= DOCUMENTED for a, b in zip(found[i:], wanted))
               for i in range(len(found) - len(wanted) + 1))


def has_drawing(text, wanted):
    found = re.findall(r"CPU ([\d,]+)", text)
    return any(found[i:i + len(wanted)] == wanted for i in range(len(found)))


def main(root):
    examples = json.load(open(Path(root) / "tests/reference/seeds_examples.json"))["examples"]
    documented = {example["id"]: example.get("documented", {}) for example in examples}
    text = output_of(Path(root) / PAGE)
    checks = [(f"{id} {name}", has_numbers(text, documented[id][name])) for id in SHOWN for name in SHOWN[id]]
    checks += [(f"a drawing of devices {drawing}", has_drawing(text, drawing)) for drawing in DRAWINGS]
    missing = [f"{PAGE} does not print: {what}" for what, is_there in checks if not is_there]
    print("\n".join(missing))
    print(f"{len(checks)} values, {len(missing)} missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
