"""Writes files of token ids with numpy: python gen_token_files.py OUT (numpy 2.4).

Token i is 7919 i mod 50257, or mod 101 in files of bytes; each file has 300 tokens. OUT/megatron.idx and .bin follow
the layout of Megatron's indexed datasets: 5 sequences in 4 documents, one of them empty.
"""
import struct
import sys

import numpy as np


def main():
    out = sys.argv[1]
    tokens = np.arange(300, dtype=np.int64) * 7919 % 50257
    for version, dtype in ((1, "u2"), (2, "i4"), (3, "u4"), (1, "i8"), (3, "u8"), (2, "u1"), (1, "i1")):
        values = (tokens % 101 if dtype[1] == "1" else tokens).astype(dtype)
        with open(f"{out}/{dtype}_version_{version}.npy", "wb") as file:
            np.lib.format.write_array(file, values, version=(version, 0))
    tokens.astype(np.uint16).tofile(f"{out}/headerless.bin")

    for name, magic, version, dtype in (("gpt2", 20240520, 1, np.uint16), ("llama3", 20240801, 7, np.uint32)):
        header = np.zeros(256, dtype=np.int32)
        header[:3] = magic, version, len(tokens)
        with open(f"{out}/llm_c_{name}.bin", "wb") as file:
            file.write(header.tobytes() + tokens.astype(dtype).tobytes())

    tokens.astype(np.uint16).tofile(f"{out}/megatron.bin")
    lengths = np.array([100, 50, 7, 0, 143], dtype=np.int32)
    pointers = (np.cumsum(lengths) - lengths).astype(np.int64) * 2
    with open(f"{out}/megatron.idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 5, 5) + lengths.tobytes() + pointers.tobytes()
                   + np.array([0, 1, 3, 4, 5], dtype=np.int64).tobytes())


main()
