"""GPT-2's and Llama's architectures in PyTorch, as nanoGPT writes them: the head shares the embedding."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

IGNORED = -100  # a target without a loss


class Block(nn.Module):
    def __init__(self, is_llama, embed, heads, kv_heads, mlp):
        super().__init__()
        self.is_llama, self.head_dim = is_llama, embed // heads
        self.features = [embed, self.head_dim * kv_heads, self.head_dim * kv_heads]  # of queries, keys and values
        self.norm1, self.norm2 = norm_of(is_llama, embed), norm_of(is_llama, embed)
        self.qkv = nn.Linear(embed, sum(self.features), bias=not is_llama)
        self.o = nn.Linear(embed, embed, bias=not is_llama)
        self.up = nn.Linear(embed, 2 * mlp if is_llama else mlp, bias=not is_llama)  # of Llama: gate and up
        self.down = nn.Linear(mlp, embed, bias=not is_llama)

    def attention(self, x, angles, mask):
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in x.split(self.features, -1))
        if angles:
            q, k = rotated(q, *angles), rotated(k, *angles)
        is_grouped = q.size(1) != k.size(1)
        if mask is not None and not isinstance(mask, torch.Tensor):
            return flex_attention(q, k, v, block_mask=mask, enable_gqa=is_grouped).transpose(1, 2).flatten(2)
        if mask is not None and is_grouped:  # the fused kernel for masks has no groups
            k, v = (part.repeat_interleave(q.size(1) // part.size(1), 1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=is_grouped)
        return y.transpose(1, 2).flatten(2)

    def forward(self, x, angles, mask):
        x = x + self.o(self.attention(self.qkv(self.norm1(x)), angles, mask))
        up = self.up(self.norm2(x))
        if not self.is_llama:
            return x + self.down(F.gelu(up, approximate="tanh"))
        gate, up = up.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def norm_of(is_llama, embed):
    return (nn.RMSNorm if is_llama else nn.LayerNorm)(embed, eps=1e-5)


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Decoder(nn.Module):
    def __init__(self, is_llama, layers, embed, heads, kv_heads, mlp, seq, vocab):
        super().__init__()
        self.half = embed // heads // 2
        self.tokens, self.positions = nn.Embedding(vocab, embed), None if is_llama else nn.Embedding(seq, embed)
        self.layers = nn.ModuleList(Block(is_llama, embed, heads, kv_heads, mlp) for _ in range(layers))
        self.norm = norm_of(is_llama, embed)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        matrices = sum(p.numel() for name, p in self.named_parameters() if p.dim() > 1 and "positions" not in name)
        # Counted as by the trainer: three products with each matrix. Attention has two products forward and, with the
        # recomputed logits, five backward; the causal half is not subtracted.
        self.flops_per_token = 6 * matrices + 14 * layers * seq * embed

    def forward(self, ids, targets, positions, mask=None):
        """The mean loss. positions: of each token in its document, or 0, 1, 2, ... for all rows."""
        x, angles = self.tokens(ids), None
        if self.positions is None:
            turns = positions.unsqueeze(-1) * 10000.0 ** (-torch.arange(self.half, device=ids.device) / self.half)
            angles = [turn.unsqueeze(-3).to(x.dtype) for turn in (turns.cos(), turns.sin())]
        else:
            x = x + self.positions(positions)
        for layer in self.layers:
            x = layer(x, angles, mask)
        logits = F.linear(self.norm(x), self.tokens.weight).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
