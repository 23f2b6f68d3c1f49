"""Writes what `tokenizers` does with each kind of step: python gen_tokenizer_steps.py OUT.json (tokenizers 0.23).

Cases have one of three models. "pieces" has only the unknown token and fuses it, so each token is a piece of the
pre-tokenizer. "bytes" has the 256 byte tokens. "marks" has tokens for the decoders.
"""
import json
import sys

from tokenizers import Regex, Tokenizer, decoders as d, models, normalizers as n, pre_tokenizers as p, processors as post

BYTES = {c: i for i, c in enumerate(sorted(p.ByteLevel.alphabet()))} | {"<s>": 256, "</s>": 257}
MARKS = ["▁a", "▁▁b▁", "<0xE2>", "<0x9D>", "<0xA4>", "<0x41>", "<0xZZ>", "Ġx", "é", " ", "  a ", "aab", "<unk>", "▁"]
MODELS = {
    "pieces": models.BPE({"<unk>": 0}, [], unk_token="<unk>", fuse_unk=True),
    "bytes": models.BPE(BYTES, []),
    "marks": models.BPE({token: i for i, token in enumerate(MARKS)}, [], unk_token="<unk>"),
}
TEXTS = ["", " ", "Hello, world!!  How's 12½ it—going?", "  a--b  c ", "-a-", "--", "ab12 34cd٣٤ⅷ x", "ÀÉ e\u0301\u0316 İSTANBUL ΣΑΣ ẞ",
         "\u3000日本。「語」 \u2028x\u00a0", "a\u200db_c\u0301 $+<=>^`|~", "\n\t aa\r\nb\x85", "▁a ▁▁b", "\U00010d50\ua7cb\u1c89 \u166d\U00010d40"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
PLAIN_BYTES = p.ByteLevel(add_prefix_space=False, use_regex=False)


def cases():
    accents = n.Sequence([n.NFD(), n.StripAccents()])
    for normalizer in [n.Lowercase(), n.Strip(), n.Strip(left=False), n.Strip(right=False), n.StripAccents(), accents, n.NFKC(),
                       n.Prepend("▁"), n.Replace("a", "bb"), n.Replace(Regex(r"\s+"), " "),
                       n.Sequence([n.NFKC(), n.Lowercase(), n.Strip()])]:
        yield "bytes", {"normalizer": normalizer, "pre_tokenizer": PLAIN_BYTES, "decoder": d.ByteLevel()}
    yield "bytes", {"normalizer": n.ByteLevel(), "decoder": d.ByteLevel()}
    for behavior in BEHAVIORS:
        for step in [p.Punctuation(behavior), p.Split("-", behavior), p.Split(Regex(r"\w+|[^\w\s]"), behavior),
                     p.Split(Regex(r"\p{Lu}|\d+"), behavior, invert=True)]:
            yield "pieces", {"pre_tokenizer": step}
    for step in [p.Whitespace(), p.WhitespaceSplit(), p.Digits(), p.Digits(individual_digits=True), p.CharDelimiterSplit("-"),
                 p.Sequence([p.Punctuation("contiguous"), p.Digits(True), p.WhitespaceSplit()]), p.ByteLevel(), PLAIN_BYTES,
                 *(p.Metaspace("▁", scheme, split) for scheme in ["always", "never", "first"] for split in [True, False]),
                 p.Sequence([p.WhitespaceSplit(), p.Metaspace("_", "first")])]:
        yield "pieces", {"pre_tokenizer": step}
    template = post.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)])
    for processor in [template, post.RobertaProcessing(("</s>", 257), ("<s>", 256)), post.BertProcessing(("</s>", 257), ("<s>", 256)),
                      post.RobertaProcessing(("</s>", 257), ("<s>", 256), trim_offsets=False), post.ByteLevel(trim_offsets=True),
                      post.Sequence([post.ByteLevel(trim_offsets=True), template])]:
        yield "bytes", {"pre_tokenizer": p.ByteLevel(), "post_processor": processor, "decoder": d.ByteLevel()}
    for decoder in [d.Metaspace("▁", scheme) for scheme in ["always", "never", "first"]] + [
            d.ByteFallback(), d.Fuse(), d.Replace("▁", " "), d.Replace(Regex("[ab]+"), ""), d.Strip(" ", 1, 0), d.Strip("b", 0, 1), d.Strip("a", 2, 0),
            d.ByteLevel(), d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])]:
        yield "marks", {"decoder": decoder}


def rows(model, tokenizer):
    if model == "marks":
        for ids in ([0, 1, 0], [2, 3, 4, 5], [2, 3, 5, 0], [6, 7, 8, 9], [10, 11, 10], [12, 0, 13, 13, 11]):
            yield {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
        return
    for text in TEXTS:
        encoding, full = tokenizer.encode(text, add_special_tokens=False), tokenizer.encode(text)
        yield {"text": text, "ids": encoding.ids, "offsets": encoding.offsets,
               "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False)} | (
                   {} if full.ids == encoding.ids else {"ids_with_special": full.ids, "decoded_without_special": tokenizer.decode(full.ids)})


def checksum(numbers):
    """The count of the numbers, and a polynomial of them."""
    value = 0
    for number in numbers:
        value = (value * 31 + number) % 1_000_000_007
    return [len(numbers), value]


def classes():
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for pattern in [r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\d", r"\p{P}", r"\p{S}", r"\p{Z}",
                    r"\p{C}", r"\p{Cn}", r"\s", r"\w", r"\W", r"[\w]", r"[^\W1]", "[[:punct:]]", r"\p{Han}", r"\P{Han}", r"\p{^L}",
                    r"[^\s\p{L}\p{N}]", r"[\p{Hiragana}a]", r"[^\p{Thai}]", "(?i:[a-z])"]:
        step = p.Split(Regex(pattern), "removed")
        yield pattern, checksum([ord(c) for c in characters if not step.pre_tokenize_str(c)])
    for name, step in {"is_punctuation": p.Punctuation("removed"), "is_white_space": p.WhitespaceSplit()}.items():
        yield name, checksum([ord(c) for c in characters if not step.pre_tokenize_str(c)])
    yield "is_word_character", checksum([ord(c) for c in characters if len(p.Whitespace().pre_tokenize_str(f"a{c}a")) == 1])
    yield "is_combining_mark", checksum([ord(c) for c in characters if not n.StripAccents().normalize_str(c)])
    yield "lower_case", checksum(list(n.Lowercase().normalize_str("".join(characters)).encode()))


def main():
    made = []
    for model, steps in cases():
        tokenizer = Tokenizer(MODELS[model])
        for name, step in steps.items():
            setattr(tokenizer, name, step)
        written = json.loads(tokenizer.to_str())
        made.append({"model": model, "steps": {name: written[name] for name in steps}, "rows": list(rows(model, tokenizer))})
    with open(sys.argv[1], "w") as file:
        json.dump({"classes": dict(classes()), "models": {name: json.loads(Tokenizer(model).to_str())["model"] for name, model in MODELS.items()},
                   "tokenizer_steps": made}, file)


main()
