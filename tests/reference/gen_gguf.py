"""Writes small tokenizers of each kind that llama.cpp has, and the tokens of texts.

  python gen_gguf.py OUT TEXT...        (tokenizers 0.23, sentencepiece 0.2, transformers 5.24)

Trains a small tokenizer of each kind on the texts. Writes OUT/NAME/tokenizer.json, tokenizer_config.json and
tokens.json: a list of {text, ids}, with the tokens that the template adds.
"""
import io
import json
import os
import random
import sys
import unicodedata

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.tokenization_utils_base import generate_merges

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}"
          r"\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
MARKED = normalizers.Replace(" ", "▁")


def words(pattern):
    return [pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def of_bytes(data, splits, bos=None, ignore_merges=False, normalizer=None, eos="<|endoftext|>"):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits) if len(splits) > 1 else splits[0]
    tokenizer.decoder, tokenizer.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(data, trainers.BpeTrainer(
        vocab_size=420, special_tokens=[t for t in [bos, eos] if t], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("<|fim|>", normalized=False)])
    if bos:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(bos, tokenizer)])
    return tokenizer, dict(bos_token=bos or eos, eos_token=eos)


def template(bos, tokenizer):
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
                                         special_tokens=[(bos, tokenizer.token_to_id(bos))])


def of_sentencepiece(data, prefix, eos="</s>"):
    """SentencePiece's BPE as transformers converts it; with `prefix` as in Llama 2, without as in Gemma."""
    user = [] if prefix else ["▁▁", "▁▁▁", "<turn>"]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line[:4000] for line in data), model_writer=written, model_type="bpe", vocab_size=600,
        byte_fallback=True, character_coverage=0.99, normalization_rule_name="identity", add_dummy_prefix=prefix,
        remove_extra_whitespaces=False, pad_id=3, user_defined_symbols=user, num_threads=1, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    vocab = {model.id_to_piece(i): i for i in range(len(model))}
    special = [piece for piece, i in vocab.items() if model.is_control(i) or model.is_unknown(i)]
    merges = generate_merges(vocab, {p: model.get_score(i) for p, i in vocab.items()}, skip_tokens=set(special + user))
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), MARKED]) if prefix else MARKED
    if not prefix:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                                          + [decoders.Strip(" ", 1, 0)] * prefix)
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece in special])
    tokenizer.add_tokens([AddedToken(piece, normalized=True) for piece in user])
    tokenizer.post_processor = template("<s>", tokenizer)
    return tokenizer, dict(bos_token="<s>", eos_token=eos, unk_token="<unk>", pad_token={"__type": "AddedToken", "content": "<pad>"})


KINDS = {
    "gpt-2": lambda data: of_bytes(data, [LEVEL]),
    "llama-bpe": lambda data: of_bytes(data, words(LLAMA3), "<|begin_of_text|>", True, eos="<|end_of_text|>"),
    "smaug-bpe": lambda data: of_bytes(data, words(LLAMA3)),
    "qwen2": lambda data: of_bytes(data, words(LLAMA3.replace("{1,3}", "")), normalizer=normalizers.NFC()),
    "smollm": lambda data: of_bytes(data, [pre_tokenizers.Digits(individual_digits=True), LEVEL]),
    "tekken": lambda data: of_bytes(data, words(TEKKEN), "<s>", True, eos="</s>"),
    "llama": lambda data: of_sentencepiece(data, True),
    "gemma": lambda data: of_sentencepiece(data, False),
}


def randomly(n):
    ranges = [(32, 127), (97, 123), (97, 123), (0xA1, 0x250), (0x391, 0x500), (0x3041, 0x30FF), (0x4E00, 0x4F00),
              (0x1F300, 0x1F600)]
    return "".join(random.choice([chr(random.randrange(*random.choice(ranges))), " "]) for _ in range(n))


def samples(data):
    random.seed(5)
    fixed = [data[1000:1400], "I'll  say:\n\n\t'tis 12345 + 67.8e-9 = \u00c5\u00c5 \u00e9 東京 🙂👩‍👩‍👧 <|endoftext|> x", " ",
             "   lead", "trail   ", "\r\n\r\n a\u00a0b", "<think>a</think>\n<|fim|> b", "<s>a</s> b <turn>c",
             "I'LL'Ve don't CamelCase HTTPServer", "a  b   c    d"]
    return [unicodedata.normalize("NFC", text) for text in fixed + [randomly(random.randrange(1, 60)) for _ in range(20)]]


def main():
    out, texts = sys.argv[1], sys.argv[2:]
    data = "\n".join(open(text, errors="ignore").read()[:200000] for text in texts)
    for name, make in KINDS.items():
        tokenizer, config = make(data.splitlines(keepends=True))
        os.makedirs(f"{out}/{name}", exist_ok=True)
        with open(f"{out}/{name}/tokenizer.json", "w") as file:
            file.write(tokenizer.to_str(pretty=False))
        with open(f"{out}/{name}/tokenizer_config.json", "w") as file:
            json.dump(config, file)
        with open(f"{out}/{name}/tokens.json", "w") as file:
            json.dump([{"text": text, "ids": tokenizer.encode(text).ids} for text in samples(data)], file)
        print(name, tokenizer.get_vocab_size(), tokenizer.encode("Hello 12 world").tokens)


main()
