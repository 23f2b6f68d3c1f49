"""Writes layers_transformers.safetensors: results of transformers' attention and expert layers, in our layers' layout.

    python gen_layers_transformers.py

A case is a prefix "<family>.<case>." of the tensors x, y, cotangent, x_grad, weights.<path> and grads.<path>: the
gradients of sum(y * cotangent). Paths and layouts are those of our layers.
"""

from pathlib import Path

import torch
import transformers as t
from safetensors.torch import save_file
from transformers.masking_utils import create_causal_mask, create_chunked_causal_mask, create_sliding_window_causal_mask
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.olmo2 import modeling_olmo2 as olmo2

torch.manual_seed(0)
tensors = {}
EMBED = 12
ROPE = dict(rope_type="default", rope_theta=100.0)
COMMON = dict(hidden_size=EMBED, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_hidden_layers=2,
              attn_implementation="eager", rope_parameters=ROPE)


def shake(module):
    with torch.no_grad():
        for p in [*module.parameters(), *module.buffers()]:
            p.copy_(torch.randn(p.shape) * 0.5)


def store(case, module, call, names, x=None):
    """names: our path -> a function of the weights (or gradients) by transformers' names."""
    shake(module)
    x = (torch.randn(2, 7, EMBED) if x is None else x).requires_grad_()
    y = call(x)
    cotangent = torch.randn(y.shape)
    (y * cotangent).sum().backward()
    weights, grads = dict(module.named_parameters()), {k: p.grad for k, p in module.named_parameters()}
    buffers = dict(module.named_buffers())
    tensors.update({f"{case}.{k}": v for k, v in dict(x=x, y=y, cotangent=cotangent, x_grad=x.grad).items()})
    for ours, f in names.items():
        if isinstance(f, str) and f in buffers:
            tensors[f"{case}.weights.{ours}"] = buffers[f]
            continue
        of = (lambda w, k=f: w[k] if w[k].ndim == 1 else w[k].T) if isinstance(f, str) else f
        tensors[f"{case}.weights.{ours}"], tensors[f"{case}.grads.{ours}"] = of(weights), of(grads)


def attention_names(bias=False, **more):
    parts = {f"{ours}.kernel": f"{ours}_proj.weight" for ours in "qkvo"}
    return parts | ({f"{ours}.bias": f"{ours}_proj.bias" for ours in "qkvo"} if bias else {}) | more


def attend(module, config, rope, mask_of):
    def call(x):
        positions = torch.arange(x.shape[1])[None]
        mask = mask_of(config, x, None, None, positions)
        return module(x, position_embeddings=rope(x, positions), attention_mask=mask)[0]

    return call


# ---- attention

config = t.GptOssConfig(**COMMON, sliding_window=3, layer_types=["sliding_attention", "full_attention"], attention_bias=True)
for layer, mask_of in [(0, create_sliding_window_causal_mask), (1, create_causal_mask)]:
    module = gpt_oss.GptOssAttention(config, layer)
    store(["gpt_oss.window", "gpt_oss.attention"][layer], module,
          attend(module, config, gpt_oss.GptOssRotaryEmbedding(config), mask_of), attention_names(True, sinks="sinks"))

config = t.Olmo2Config(**COMMON)
module = olmo2.Olmo2Attention(config, 0)
store("olmo2.attention", module, attend(module, config, olmo2.Olmo2RotaryEmbedding(config), create_causal_mask),
      attention_names(**{"q_norm.scale": "q_norm.weight", "k_norm.scale": "k_norm.weight"}))

config = t.Llama4TextConfig(**COMMON, attention_chunk_size=3, no_rope_layers=[1, 0], use_qk_norm=True, floor_scale=2,
                            attn_scale=0.3, attn_temperature_tuning=True)
for layer, mask_of in [(0, create_chunked_causal_mask), (1, create_causal_mask)]:
    module = llama4.Llama4TextAttention(config, layer)
    store(["llama4.chunk", "llama4.temperature"][layer], module,
          attend(module, config, llama4.Llama4TextRotaryEmbedding(config), mask_of), attention_names())

YARN = dict(rope_type="yarn", rope_theta=100.0, factor=8.0, original_max_position_embeddings=16, beta_fast=4,
            beta_slow=1, mscale=0.7, mscale_all_dim=1.2)
for case, more in [("deepseek_v3.attention", dict(q_lora_rank=5, attention_bias=True, rope_parameters=YARN)),
                   ("deepseek_v3.plain_query", dict(q_lora_rank=None, rope_interleave=False, rope_parameters=ROPE))]:
    latent = dict(kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, num_key_value_heads=4)
    config = t.DeepseekV3Config(**{k: v for k, v in COMMON.items() if k != "head_dim"} | latent | more)
    module = deepseek.DeepseekV3Attention(config, 0)
    names = {"kv_down.kernel": "kv_a_proj_with_mqa.weight", "kv_norm.scale": "kv_a_layernorm.weight",
             "kv_up.kernel": "kv_b_proj.weight", "o.kernel": "o_proj.weight"}
    if config.q_lora_rank:
        names |= {"q_down.kernel": "q_a_proj.weight", "q_down.bias": "q_a_proj.bias", "q.kernel": "q_b_proj.weight",
                  "q_norm.scale": "q_a_layernorm.weight", "kv_down.bias": "kv_a_proj_with_mqa.bias", "o.bias": "o_proj.bias"}
    else:
        names["q.kernel"] = "q_proj.weight"
    store(case, module, attend(module, config, deepseek.DeepseekV3RotaryEmbedding(config), create_causal_mask), names)

# ---- experts


def experts_of(module):
    return lambda x: (y[0] if isinstance(y := module(x), tuple) else y).reshape(x.shape)


config = t.GptOssConfig(**COMMON, num_local_experts=4, num_experts_per_tok=2, intermediate_size=10, swiglu_limit=1.5)
module = gpt_oss.GptOssMLP(config)
store("gpt_oss.experts", module, experts_of(module), {
    "router": "router.weight", "router_bias": "router.bias",
    "gate": lambda w: w["experts.gate_up_proj"][..., ::2], "up": lambda w: w["experts.gate_up_proj"][..., 1::2],
    "gate_bias": lambda w: w["experts.gate_up_proj_bias"][..., ::2],
    "up_bias": lambda w: w["experts.gate_up_proj_bias"][..., 1::2],
    "down": lambda w: w["experts.down_proj"], "down_bias": lambda w: w["experts.down_proj_bias"]})

SHARED = {f"shared.{k}.kernel": f"shared_experts.{k}_proj.weight" for k in ["gate", "up", "down"]}
config = t.DeepseekV3Config(**COMMON, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3,
                            moe_intermediate_size=10, n_shared_experts=2, routed_scaling_factor=2.5)
module = deepseek.DeepseekV3MoE(config)
store("deepseek_v3.experts", module, experts_of(module), SHARED | {
    "router": "gate.weight", "bias": "gate.e_score_correction_bias",
    "gate": lambda w: w["experts.gate_up_proj"][:, :10].mT, "up": lambda w: w["experts.gate_up_proj"][:, 10:].mT,
    "down": lambda w: w["experts.down_proj"].mT})

config = t.Llama4TextConfig(**COMMON, num_local_experts=4, num_experts_per_tok=1, intermediate_size=10)
module = llama4.Llama4TextMoe(config)
store("llama4.experts", module, experts_of(module), {k: v.replace("experts.", "expert.") for k, v in SHARED.items()} | {
    "router": "router.weight", "gate": lambda w: w["experts.gate_up_proj"][..., :10],
    "up": lambda w: w["experts.gate_up_proj"][..., 10:], "down": lambda w: w["experts.down_proj"]})

save_file({k: v.detach().contiguous().clone() for k, v in sorted(tensors.items())},
          Path(__file__).parent / "layers_transformers.safetensors",
          {"transformers": t.__version__, "torch": torch.__version__})
