"""Compares tokenizers with `tokenizers`: python compare_tokenizers.py RUNNER PATH... (RUNNER: build/release/tests/reference_runner).

Each PATH is a tokenizer.json under any name, or a folder that is searched for them. Encodes and decodes 500 odd texts:
all characters in blocks, random ones of many scripts, code, white space, and the file's own tokens in between. Prints
a line for each file: equal, the number of texts that differ with the first difference, or the error that refuses it.
"""
import collections
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b", "\u200b", "   \n  ", "\u1680"]
WORDS = ["don't", "I'LL", "we'ſ", "x86_64", "3.14159", "12345678", "²³½", "_id__", "naïve", "e\u0301\u0316", "ﬁne", "İstanbul",
         "Straße", "日本語テスト", "한국어", "안녕하세요", "हिन्दी", "ภาษาไทย", "العربية", "עברית", "🙂👩‍👩‍👧🇩🇪", "𝒳𝔸", "ⅷⅨ", "①Ⓐ",
         "a\u200db", "\u1100\u1161\u11a8", "<0x41>", "▁a", "Ġb", "</s>", "<|endoftext|>", "[INST]", "#include <a>", "x+=1;",
         "!!!???", "——…", "$%^&*", "\ufffd", "\x00", "\ue000", "𠀋", "\U00030000", "\ufdfa", "\uac01", "ཀྵ", "\u0f73"]
CODE = ["def f(x):\n\treturn x ** 2  # 3rd\n", "int main() {\n    std::cout << \"a\\n\";\n}\n", "SELECT * FROM t WHERE a='b';",
        "https://example.org/a?b=c&d=%20#e", "<div class=\"a\">\n  <p>b</p>\n</div>", "{\"a\": [1, 2.5e-3, null]}"]
RANGES = [(0x20, 0x7F), (0x61, 0x7B), (0xA0, 0x250), (0x250, 0x530), (0x530, 0x1000), (0x1000, 0x2000), (0x2000, 0x2C00),
          (0x3000, 0x3400), (0x4E00, 0x9FFF), (0xA000, 0xD800), (0xE000, 0x10000), (0x10000, 0x11000), (0x1F000, 0x20000)]


def all_characters():
    """Every assigned character; of long runs (ideographs, private use) and unassigned ones, each 61st."""
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        is_dull = 0x3400 <= c < 0xA000 or 0xAC00 <= c or unicodedata.category(chr(c)) == "Cn"
        if not is_dull or c % 61 == 0 or 0xF900 <= c < 0x12000 or 0x16A00 <= c < 0x1FC00:
            yield chr(c)


def samples(tokenizer):
    random.seed(7)
    own = [t.content for t in tokenizer.get_added_tokens_decoder().values()] or [""]
    texts = ["", " ", "   lead", "trail   ", "\r\n\r\n a\u00a0b", "a" * 300, " " * 300, "ab" * 200] + SPACES + WORDS + CODE
    every = list(all_characters())
    texts += ["".join(every[i:i + 256]) for i in range(0, len(every), 256)]
    while len(texts) < 500:
        parts = [random.choice([random.choice(SPACES), " ", random.choice(WORDS), random.choice(CODE), random.choice(own),
                                "".join(chr(random.randrange(*random.choice(RANGES))) for _ in range(random.randrange(1, 9)))])
                 for _ in range(random.randrange(2, 40))]
        texts.append("".join(parts).encode("utf-8", "ignore").decode())
    return texts


def expected(tokenizer, texts):
    rows = []
    for text in texts:
        encoding, full = (tokenizer.encode(text, add_special_tokens=special) for special in (False, True))
        rows.append({"text": text, "ids": encoding.ids, "offsets": encoding.offsets,
                     "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False), "ids_with_special": full.ids,
                     "decoded_without_special": tokenizer.decode(full.ids)})
    return rows


def files(paths):
    for path in paths:
        if os.path.isfile(path):
            yield path
        for folder, _, names in os.walk(path):
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".json"))


def compare(runner, path, folder):
    try:
        value = json.load(open(path))
        if not isinstance(value, dict) or not {"model", "added_tokens"} <= value.keys():
            return None
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # of tokenizers: any
        return f"not of tokenizers: {error}" if "value" in locals() else None
    tokenizer.no_padding(), tokenizer.no_truncation()
    texts = samples(tokenizer)
    os.makedirs(folder)
    shutil.copy(path, f"{folder}/tokenizer.json")
    json.dump(expected(tokenizer, texts), open(f"{folder}/expected.json", "w"))
    lines = subprocess.run([runner, folder], capture_output=True, text=True, errors="replace").stdout.splitlines()
    shutil.rmtree(folder)
    refused = [line for line in lines if ": expected a run to the end, got " in line]
    if refused:
        return "refused: " + refused[0].split(", got ", 1)[1].replace(folder + "/", "")
    different = [line for line in lines if line.startswith(folder)]
    numbers = {re.match(r", text (\d+)", line[len(folder):]).group(1) for line in different}
    return f"{len(numbers)} of {len(texts)} differ: {different[0][len(folder) + 2:]}" if different else f"equal {len(texts)}"


def main():
    runner, paths = sys.argv[1], sys.argv[2:]
    results = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for i, path in enumerate(files(paths)):
            result = compare(runner, path, f"{scratch}/{i}")
            if result:
                results[re.split(r"[ :]", result)[0]] += 1
                print(f"{path}: {result}", flush=True)
    print(dict(results))


main()
