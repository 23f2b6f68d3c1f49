"""Writes tiny random decoders of Hugging Face, and the results of transformers for them.

  python gen_hf.py OUT [NAME...]        (transformers 5.23 and 5.24, torch 2.11)

Each OUT/NAME has config.json and model.safetensors as save_pretrained writes them, and expected.json: `ids` (2, 20);
`loss` (mean; labels = ids, shifted inside); `grad_norm` (all parameters, tied ones counted once); `logits_last`
(2, vocab) at the last position; `logits_abs_sum` over all positions; `greedy`: the first 8 ids of row 0, and the ids
that greedy decoding appends.
"""
import json
import os
import sys

import torch
import transformers as t

VOCAB = 101
# Sizes that eight devices do not all divide: heads, kv heads and vocabulary.
COMMON = dict(vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
              num_key_value_heads=2, max_position_embeddings=128)
THETA = dict(rope_theta=10000.0)
GPT2 = dict(vocab_size=VOCAB, n_positions=128, n_embd=24, n_layer=2, n_head=6)
GEMMA2 = dict(COMMON, head_dim=8, query_pre_attn_scalar=24, sliding_window=7, attn_logit_softcapping=3.0,
              final_logit_softcapping=2.0)
MIXTRAL = dict(COMMON, num_local_experts=4, num_experts_per_tok=2)
QWEN3_MOE = dict(COMMON, head_dim=8, num_experts_per_tok=2, moe_intermediate_size=16)
DEEPSEEK = dict(COMMON, num_key_value_heads=6, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
                n_routed_experts=8, moe_intermediate_size=16)

# The families after the first seven; smaller, because there are many.
SMALL = dict(vocab_size=97, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64)
ONE_KV = dict(vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, max_position_embeddings=64)


def rope(kind, **more):
    return dict(rope_parameters=dict(THETA, rope_type=kind, **more))


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=32)

LOCAL_LAST = ["full_attention", "sliding_attention", "sliding_attention"]
NEOX = dict(vocab_size=97, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
            max_position_embeddings=64)

DECODERS = {
    "gpt2": (t.GPT2Config, GPT2),
    "gpt2_untied": (t.GPT2Config, dict(GPT2, tie_word_embeddings=False, n_inner=72, activation_function="relu",
                                       scale_attn_by_inverse_layer_idx=True)),
    "gpt2_gelu": (t.GPT2Config, dict(GPT2, activation_function="gelu", scale_attn_weights=False,
                                     layer_norm_epsilon=1e-3)),
    "llama": (t.LlamaConfig, dict(COMMON, **rope("default"), rms_norm_eps=1e-6, tie_word_embeddings=False)),
    "llama3": (t.LlamaConfig, dict(COMMON, **LLAMA3, head_dim=6, tie_word_embeddings=True)),
    "llama_biases": (t.LlamaConfig, dict(COMMON, **rope("linear", factor=3.0), attention_bias=True, mlp_bias=True)),
    "llama_yarn": (t.LlamaConfig, dict(COMMON, **YARN)),
    "llama_yarn_options": (t.LlamaConfig, dict(COMMON, **rope("yarn", factor=8.0, beta_fast=16.0, beta_slow=2.0,
                                                              attention_factor=1.3,
                                                              original_max_position_embeddings=16))),
    # Texts of 20 tokens are longer than the positions of training; the prompts of 8 tokens are not.
    "llama_dynamic": (t.LlamaConfig, dict(COMMON, **rope("dynamic", factor=3.0), max_position_embeddings=12)),
    "llama_longrope": (t.LlamaConfig, dict(COMMON, **rope("longrope", factor=4.0, short_factor=[1.0, 1.3],
                                                          long_factor=[1.5, 6.0],
                                                          original_max_position_embeddings=16))),
    "llama_gelu": (t.LlamaConfig, dict(COMMON, **rope("default"), hidden_act="gelu", num_key_value_heads=6)),
    "qwen2": (t.Qwen2Config, dict(COMMON, **rope("default"), tie_word_embeddings=False)),
    "qwen2_tied": (t.Qwen2Config, dict(COMMON, rope_parameters=dict(rope_type="default", rope_theta=1e5),
                                       tie_word_embeddings=True)),
    "qwen2_window": (t.Qwen2Config, dict(COMMON, **rope("default"), use_sliding_window=True, sliding_window=6,
                                         max_window_layers=1)),
    "qwen3": (t.Qwen3Config, dict(COMMON, **rope("default"), head_dim=8)),
    "qwen3_biases": (t.Qwen3Config, dict(COMMON, **YARN, head_dim=6, attention_bias=True, tie_word_embeddings=True,
                                         use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "mistral": (t.MistralConfig, dict(COMMON, **rope("default"), sliding_window=7)),
    "mistral_whole": (t.MistralConfig, dict(COMMON, **rope("default"), sliding_window=None, head_dim=10)),
    "gemma2": (t.Gemma2Config, dict(GEMMA2, **rope("default"))),
    "gemma2_uncapped": (t.Gemma2Config, dict(GEMMA2, **rope("default"), attn_logit_softcapping=None,
                                             final_logit_softcapping=None, sliding_window=4, num_hidden_layers=3)),
    "mixtral": (t.MixtralConfig, dict(MIXTRAL, **rope("default"))),
    "mixtral_balance": (t.MixtralConfig, dict(MIXTRAL, **rope("default"),
                                              output_router_logits=True, router_aux_loss_coef=0.3)),
    "gemma": (t.GemmaConfig, dict(SMALL, **rope("default"), head_dim=6)),
    "gemma3_text": (t.Gemma3TextConfig, dict(
        SMALL, head_dim=6, query_pre_attn_scalar=10, sliding_window=5, num_hidden_layers=3, layer_types=LOCAL_LAST,
        rope_parameters={"full_attention": dict(rope_type="linear", factor=4.0, rope_theta=50000.0),
                         "sliding_attention": dict(rope_type="default", rope_theta=100.0)})),
    "phi3": (t.Phi3Config, dict(SMALL, num_attention_heads=3, num_key_value_heads=1, sliding_window=6,
                                tie_word_embeddings=True, **rope("default", partial_rotary_factor=0.75))),
    "phi3_longrope": (t.Phi3Config, dict(
        SMALL, num_attention_heads=3, num_key_value_heads=1, original_max_position_embeddings=16,
        **rope("longrope", short_factor=[1.0, 1.2, 1.4], long_factor=[1.5, 3.0, 6.0], partial_rotary_factor=0.75))),
    "smollm3": (t.SmolLM3Config, dict(SMALL, **rope("default"), num_hidden_layers=3, no_rope_layers=[1, 0, 1],
                                      use_sliding_window=True, sliding_window=5, attention_bias=True)),
    "olmo2": (t.Olmo2Config, dict(SMALL, **rope("default"), attention_bias=True)),
    "olmo3": (t.Olmo3Config, dict(SMALL, sliding_window=5, layer_types=LOCAL_LAST, num_hidden_layers=3,
                                  rope_parameters={"full_attention": dict(THETA, rope_type="yarn", factor=4.0,
                                                                          original_max_position_embeddings=16),
                                                   "sliding_attention": dict(THETA, rope_type="default")})),
    "gpt_neox": (t.GPTNeoXConfig, dict(NEOX, **rope("default", partial_rotary_factor=0.5))),
    "gpt_neox_serial": (t.GPTNeoXConfig, dict(NEOX, **rope("default", partial_rotary_factor=1.0),
                                              use_parallel_residual=False, attention_bias=False)),
    "granite": (t.GraniteConfig, dict(SMALL, **rope("default"), embedding_multiplier=3.0, logits_scaling=4.0,
                                      residual_multiplier=0.6, attention_multiplier=0.3, mlp_bias=True)),
    "ministral": (t.MinistralConfig, dict(SMALL, **rope("default"), head_dim=8, sliding_window=5,
                                          layer_types=["full_attention", "sliding_attention"])),
    "cohere": (t.CohereConfig, dict(SMALL, **rope("default"), logit_scale=0.3, attention_bias=True)),
    "cohere2": (t.Cohere2Config, dict(SMALL, **rope("default"), sliding_window=5, num_hidden_layers=3,
                                      layer_types=LOCAL_LAST)),
    "falcon": (t.FalconConfig, dict(ONE_KV, **rope("default"), ffn_hidden_size=20, new_decoder_architecture=True,
                                    num_kv_heads=2, bias=True)),
    "falcon_shared": (t.FalconConfig, dict(ONE_KV, **rope("default"), ffn_hidden_size=20)),
    "falcon_serial": (t.FalconConfig, dict(ONE_KV, **rope("default"), ffn_hidden_size=20, parallel_attn=False,
                                           multi_query=False, tie_word_embeddings=False)),
    "opt": (t.OPTConfig, dict(ONE_KV, ffn_dim=20, max_position_embeddings=80)),
    "starcoder2": (t.Starcoder2Config, dict(SMALL, **rope("default"), sliding_window=5)),
    "mixtral_window": (t.MixtralConfig, dict(MIXTRAL, **rope("default"), sliding_window=6, num_local_experts=6,
                                             num_experts_per_tok=1, tie_word_embeddings=True)),
    "qwen3_moe": (t.Qwen3MoeConfig, dict(QWEN3_MOE, **rope("default"), num_hidden_layers=3, num_experts=4,
                                         norm_topk_prob=True, mlp_only_layers=[1])),
    "qwen3_moe_balance": (t.Qwen3MoeConfig, dict(QWEN3_MOE, **rope("default"), num_experts=6, decoder_sparse_step=2,
                                                 output_router_logits=True, router_aux_loss_coef=0.3,
                                                 tie_word_embeddings=True)),
    "deepseek_v3": (t.DeepseekV3Config, dict(DEEPSEEK, **rope("yarn", factor=4.0, mscale=0.8, mscale_all_dim=1.2,
                                                              original_max_position_embeddings=32),
                                             num_hidden_layers=3, first_k_dense_replace=1, q_lora_rank=12, v_head_dim=6,
                                             n_group=4, topk_group=2, num_experts_per_tok=3)),
    "deepseek_v3_options": (t.DeepseekV3Config, dict(DEEPSEEK, **rope("default"), rope_interleave=False,
                                                     first_k_dense_replace=0, q_lora_rank=None, v_head_dim=12,
                                                     n_group=1, topk_group=1, num_experts_per_tok=2,
                                                     n_shared_experts=2, routed_scaling_factor=1.5,
                                                     norm_topk_prob=False, attention_bias=True,
                                                     tie_word_embeddings=True)),
    "gpt_oss": (t.GptOssConfig, dict(COMMON, **rope("yarn", factor=4.0, truncate=False, beta_fast=32.0, beta_slow=1.0,
                                                    original_max_position_embeddings=32),
                                     head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=7,
                                     swiglu_limit=0.1)),
    "llama4": (t.Llama4TextConfig, dict(COMMON, **LLAMA3, head_dim=8, num_hidden_layers=4, intermediate_size=16,
                                        intermediate_size_mlp=40, num_local_experts=4, attention_chunk_size=8,
                                        interleave_moe_layer_step=2, floor_scale=4, attn_scale=0.2)),
}


def values_of_its_own(model, around_one):
    """Moves each parameter away from neutral values. Norm scales are near one, or near zero if one is added to
    them."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = ("norm" in name or "ln_" in name) and name.endswith("weight")
            p.copy_(torch.randn_like(p) * (0.05 if p.dim() > 1 else 0.1) + (1.0 if norm and around_one else 0.0))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.1)


def expected(model):
    ids = torch.randint(3, model.config.vocab_size, (2, 20), generator=torch.Generator().manual_seed(2))
    result = model(input_ids=ids, labels=ids)
    result.loss.backward()
    squares = sum((p.grad.double() ** 2).sum() for p in model.parameters() if p.grad is not None)
    with torch.no_grad():
        greedy = model.generate(ids[:1, :8], attention_mask=torch.ones(1, 8, dtype=torch.long), max_new_tokens=64,
                                do_sample=False, eos_token_id=None)
    return dict(transformers=t.__version__, ids=ids.tolist(), loss=result.loss.item(),
                grad_norm=torch.sqrt(squares).item(), logits_last=result.logits[:, -1].tolist(),
                logits_abs_sum=result.logits.double().abs().sum().item(), greedy=greedy[0].tolist())


def main():
    out, names = sys.argv[1], sys.argv[2:]
    for name in names or DECODERS:
        kind, options = DECODERS[name]
        torch.manual_seed(11)
        config = kind(**options, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        config._attn_implementation = "eager"
        model = t.AutoModelForCausalLM.from_config(config).float().eval()
        values_of_its_own(model, "gemma" not in kind.model_type)
        folder = os.path.join(out, name)
        model.save_pretrained(folder, safe_serialization=True)
        with open(os.path.join(folder, "expected.json"), "w") as file:
            json.dump(expected(model), file)
        print(name, sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)))


if __name__ == "__main__":
    main()
