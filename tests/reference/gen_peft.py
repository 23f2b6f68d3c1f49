"""Writes LoRA adapters of PEFT for decoders of tests/reference/hf, and the logits of transformers with them.

  python gen_peft.py HF OUT        (peft 0.21, transformers 5.24, torch 2.11)

Each OUT/NAME has adapter_config.json and adapter_model.safetensors as peft writes them, and expected.json: `base`, a
folder in HF; `ids` (1, 6); `logits_last` (vocab) at the last position.
"""
import json
import os
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "llama": ("llama", dict(r=2, lora_alpha=6, target_modules=LAYERS)),
    "qwen2_rslora": ("qwen2_tied", dict(r=4, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "v_proj"])),
    "gpt2": ("gpt2", dict(r=2, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])),
}

hf, out = sys.argv[1:]
for seed, (name, (base, options)) in enumerate(ADAPTERS.items()):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(f"{hf}/{base}", dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options)).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.copy_(torch.randn_like(p) * 0.3)
        ids = torch.arange(1, 7)[None]
        logits = model(input_ids=ids).logits[0, -1]
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(f"{out}/{name}")
    os.remove(f"{out}/{name}/README.md")
    with open(f"{out}/{name}/expected.json", "w") as file:
        json.dump(dict(base=base, ids=ids.tolist(), logits_last=[round(x, 6) for x in logits.tolist()]), file)
