"""Writes test vectors of tokenizers: python gen_tokenizers.py OUT TEXT... (tokenizers 0.23).

Trains a small tokenizer of each kind on the texts and writes OUT/NAME/tokenizer.json and OUT/NAME/expected.json: a list
of {text, ids (no special tokens added), offsets (in characters), decoded}.
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
CHARACTERS = "\n\t\u200d\ufe0f\u0301\u0323\ufb01\uac00\u1100\u1161\u11a8\x85\u2028\x0b\u1e9b\u200b\u0660"


def of_bytes(*splits, normalizer=None, processor=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(splits)) if len(splits) > 1 else splits[0]
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    if processor:
        tokenizer.post_processor = processor
    return tokenizer


def words(pattern):
    return [pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def of_characters(normalizer=None, split=None, strip=1):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if split:
        tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", strip, 0)])
    return tokenizer


def unknown_words():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.WhitespaceSplit()
    return tokenizer


MARKED = normalizers.Replace(" ", "▁")
OF_BYTES = {
    "gpt2": lambda: of_bytes(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "llama3": lambda: of_bytes(*words(GPT4)),
    "qwen": lambda: of_bytes(*words(GPT4.replace("{1,3}", "")), normalizer=normalizers.NFC()),
    "starcoder": lambda: of_bytes(pre_tokenizers.Digits(individual_digits=True),
                                  pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "roberta": lambda: of_bytes(pre_tokenizers.ByteLevel(add_prefix_space=True),
                                processor=processors.ByteLevel(trim_offsets=True)),
}
OF_CHARACTERS = {
    "llama2": lambda: of_characters(normalizers.Sequence([normalizers.Prepend("▁"), MARKED])),
    "mistral": lambda: of_characters(split=pre_tokenizers.Metaspace(prepend_scheme="first", split=True)),
    "gemma": lambda: of_characters(MARKED, pre_tokenizers.Split(" ", "merged_with_previous"), strip=0),
    "nfkc": unknown_words,
}


def randomly(n):
    ranges = [(32, 127), (97, 123), (0xA0, 0x500), (0x3040, 0x30FF), (0x4E00, 0x4F00), (0x1F300, 0x1F600)]
    return "".join(random.choice([chr(random.randrange(*random.choice(ranges))), " ", random.choice(CHARACTERS)])
                   for _ in range(n))


def samples(data):
    random.seed(5)
    fixed = [data[1000:1400], "I'll  say:\n\n\t'tis 12345 + 67.8e-9 = ÅÅ é e\u0301 ﬁ 東京 🙂👩‍👩‍👧 <|endoftext|> x", "", " ",
             "   lead", "trail   ", "\r\n\r\n a\u00a0b", "<|endoftext|><|endoftext|>a", "<s>a</s> b <unk>c<0x41>",
             "▁a ▁ b", "\ufffd\x00a", "I'LL'Ve ſ'ſ", "word words sword a <mask>  b\u200dword"]
    return fixed + [randomly(random.randrange(1, 60)) for _ in range(20)] + [randomly(500)]


def main():
    out, texts = sys.argv[1], sys.argv[2:]
    data = "\n".join(open(text, errors="ignore").read()[:400000] for text in texts)
    for name, make in (OF_BYTES | OF_CHARACTERS).items():
        tokenizer, is_of_bytes = make(), name in OF_BYTES
        special = ["<|endoftext|>"] if is_of_bytes else ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
        tokenizer.train_from_iterator(data.splitlines(keepends=True), trainers.BpeTrainer(
            vocab_size=500, special_tokens=special, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if is_of_bytes else []))
        tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=name != "gpt2"),
                              AddedToken("word", single_word=True)])
        os.makedirs(f"{out}/{name}", exist_ok=True)
        with open(f"{out}/{name}/tokenizer.json", "w") as file:
            file.write(tokenizer.to_str(pretty=False))
        rows = []
        for text in samples(data):
            encoding = tokenizer.encode(text, add_special_tokens=False)
            rows.append({"text": text, "ids": encoding.ids, "offsets": encoding.offsets,
                         "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False)})
        with open(f"{out}/{name}/expected.json", "w") as file:
            json.dump(rows, file)


main()
