"""Loads folders that Tessera saved in transformers, and compares loss and logits with the reference folders.

  TESSERA_KEEP_SAVED=SAVED reference_runner tests/reference/hf/*
  python check_saved.py tests/reference/hf SAVED          (transformers 5.24, torch 2.11)
"""
import json
import os
import sys

import torch
import transformers as t


def check(reference, saved):
    """Returns the largest relative difference of loss and last logits."""
    with open(os.path.join(reference, "expected.json")) as file:
        expected = json.load(file)
    model, info = t.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32, attn_implementation="eager", pad_token_id=0,
                                                         output_loading_info=True)
    unread = {key: value for key, value in info.items() if value and key != "error_msgs"}
    if unread:
        raise SystemExit(f"{saved}: {unread}")
    ids = torch.tensor(expected["ids"])
    with torch.no_grad():
        result = model.eval()(input_ids=ids, labels=ids)
    wanted = torch.tensor(expected["logits_last"])
    difference = ((result.logits[:, -1] - wanted).abs().max() / wanted.abs().max()).item()
    return max(difference, abs(result.loss.item() / expected["loss"] - 1))


def main():
    references, saved = sys.argv[1:]
    worst = {name: check(os.path.join(references, name), os.path.join(saved, name)) for name in sorted(os.listdir(saved))}
    for name, difference in worst.items():
        print(f"{name}: {difference:.1e}")
    failed = [name for name, difference in worst.items() if not difference < 1e-4]
    print(f"{len(worst) - len(failed)} folders are read with equal results, {len(failed)} are not")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
