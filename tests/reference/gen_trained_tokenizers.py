"""Writes vocabularies learned by BpeTrainer: python gen_trained_tokenizers.py OUT TEXT... (tokenizers 0.23).

Writes OUT/texts.json, a list of texts: pieces of the files, and letters drawn so that many pairs are equally frequent.
Writes OUT/NAME.json for each case: the options, and the tokenizer.json trained on the texts of the case.
"""
import json
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
CASES = {
    "gpt2": {"vocab_size": 2000, "special_tokens": ["<|endoftext|>"], "min_frequency": 0, "pattern": ""},
    "frequent": {"vocab_size": 4000, "special_tokens": ["<s>", "a", "</s>"], "min_frequency": 9, "pattern": ""},
    "gpt4": {"vocab_size": 1500, "special_tokens": [], "min_frequency": 2, "pattern": GPT4},
    "exhausted": {"vocab_size": 30000, "special_tokens": [], "min_frequency": 0, "pattern": "", "texts": 60},
}


def drawn():
    random.seed(11)
    return ["".join(random.choice("aab \n\u00e9\u6771") for _ in range(random.randrange(1, 300))) for _ in range(60)]


def train(texts, vocab_size, special_tokens, min_frequency, pattern):
    tokenizer = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern)
    tokenizer.pre_tokenizer = level if not pattern else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special_tokens, min_frequency=min_frequency, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def main():
    out, files = sys.argv[1], sys.argv[2:]
    texts = []
    for file in files:
        text = open(file, errors="ignore").read()
        texts += [text[at:at + 2000] for at in range(0, min(len(text), 60000), 2000)]
    texts += drawn()
    with open(f"{out}/texts.json", "w") as file:
        json.dump(texts, file, ensure_ascii=False)
    for name, options in CASES.items():
        options = dict(options)
        first = len(texts) - options.pop("texts", len(texts))
        tokenizer = train(texts[first:], **options)
        with open(f"{out}/{name}.json", "w") as file:
            json.dump({"options": options, "first_text": first,
                       "tokenizer": json.loads(tokenizer.to_str())}, file, ensure_ascii=False)


main()
