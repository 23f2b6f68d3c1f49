#!/usr/bin/env python3
"""Makes random documents for measurements, the same ones for train_transformer and torch_gpt.py.

  random_documents.py FOLDER   writes rows.bin (llm.c, without documents), documents.bin and documents.idx (Megatron)

An id has the probability 1 / (id + 1) up to a factor, as words in texts have (Zipf's law). Lengths are exponential.
"""
import array
import itertools
import pathlib
import random
import struct
import sys

VOCAB, MEAN_LENGTH, OPEN_ROWS = 50304, 400, 8


def random_documents(tokens, vocab=VOCAB):
    draw = random.Random(0)
    while tokens > 0:
        length = min(tokens, 16 + int(draw.expovariate(1 / (MEAN_LENGTH - 16))))
        yield [int(vocab ** draw.random()) - 1 for _ in range(length)]
        tokens -= length


def packed(documents, length):
    """Rows of documents, first fit as by data/streams/pack.h: lists of tokens, segment ids and positions."""
    rows = []
    for document in documents:
        for begin in range(0, len(document), length):
            piece = document[begin:begin + length]
            row = next((row for row in rows if len(row[0]) + len(piece) <= length), None)
            if row is None:
                if len(rows) == OPEN_ROWS:
                    yield from rows
                    rows = []
                row = ([], [], [])
                rows.append(row)
            row[1].extend([row[1][-1] + 1 if row[1] else 1] * len(piece))
            row[0].extend(piece)
            row[2].extend(range(len(piece)))
    yield from rows


def packed_rows(count, length, vocab, has_documents):
    """So many rows of one length, padded with segment 0. Without documents, each row is one."""
    documents = random_documents(2 * count * length, min(vocab, VOCAB))
    if not has_documents:
        tokens = itertools.chain.from_iterable(documents)
        documents = (list(itertools.islice(tokens, length)) for _ in range(count))
    rows = itertools.islice(packed(documents, length), count)
    return [[values + [0] * (length - len(values)) for values in row] for row in rows]


def write_token_files(folder, documents):
    tokens = array.array("H", itertools.chain.from_iterable(documents)).tobytes()
    lengths = [len(document) for document in documents]
    begins = list(itertools.accumulate(lengths, initial=0))
    (folder / "rows.bin").write_bytes(struct.pack("<256i", 20240520, 1, begins[-1], *[0] * 253) + tokens)
    (folder / "documents.bin").write_bytes(tokens)
    (folder / "documents.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
        + array.array("i", lengths).tobytes() + array.array("q", [2 * begin for begin in begins[:-1]]).tobytes()
        + array.array("q", range(len(lengths) + 1)).tobytes())


if __name__ == "__main__":
    write_token_files(pathlib.Path(sys.argv[1]), list(random_documents(2_000_000)))
