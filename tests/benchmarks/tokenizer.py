"""Compares the speed of Tokenizer::encode with Hugging Face's `tokenizers`, on one thread.

    tokenizer.py --build build/release --tokenizer FOLDER TEXT...

FOLDER has a tokenizer.json. The two alternate; figures are medians of CPU time over the turns, with the least and the
greatest in brackets.
"""
import argparse
import os
import statistics
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--tokenizer", required=True)
parser.add_argument("--turns", type=int, default=5)
parser.add_argument("texts", nargs="+")
options = parser.parse_args()


def encode(texts):
    begin = time.process_time()
    encodings = tokenizer.encode_batch(texts) if len(texts) > 1 else [tokenizer.encode(texts[0])]
    return time.process_time() - begin, sum(len(encoding) for encoding in encodings)


def summary(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


tokenizer = tokenizers.Tokenizer.from_file(os.path.join(options.tokenizer, "tokenizer.json"))
print(f"{'text':20} {'as':6} {'tokens':>9}  MB/s, Tessera; `tokenizers` {tokenizers.__version__}; ratio")
for path in options.texts:
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    megabytes = os.path.getsize(path) / 1e6
    lines = [line + "\n" for line in text.split("\n")[:-1]] + [text.split("\n")[-1]]
    if not lines[-1]:
        lines.pop()
    program = subprocess.Popen([os.path.join(options.build, "tests/benchmarks/tokenizer"), options.tokenizer, path],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for what, texts in [("text", [text]), ("lines", lines)]:
        speeds = {"ours": [], "theirs": [], "ratio": []}
        for _ in range(options.turns):
            print(what, file=program.stdin, flush=True)
            ours, count = program.stdout.readline().split()
            theirs, their_count = encode(texts)
            if int(count) != their_count:
                raise SystemExit(f"{path}: {count} tokens, expected {their_count} as `tokenizers`")
            speeds["ours"].append(megabytes / float(ours))
            speeds["theirs"].append(megabytes / theirs)
            speeds["ratio"].append(theirs / float(ours))
        print(f"{os.path.basename(path)[:20]:20} {what:6} {count:>9}  " + "; ".join(map(summary, speeds.values())))
    program.stdin.close()
    program.wait()
