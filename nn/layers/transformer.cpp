// Implements EncoderBlock and DecoderBlock.
#include "nn/layers/transformer.h"

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"

namespace tessera::nn {

namespace {

AttentionOptions attention_options(const BlockOptions& o, bool causal) {
  return {.causal = causal, .kv_features = o.kv_features, .rope = o.rope, .dropout = o.dropout, .dtypes = o.dtypes};
}

template <class Block>
Block block_of(const Key& attention, const Key& mlp, const Axis& embed, const Axis& heads, int64_t num_heads,
               const Axis& hidden, const BlockOptions& o, bool causal) {
  Block block{.norm1 = LayerNorm::init(embed, o.eps, o.dtypes),
              .attention = MultiheadAttention::init(attention, embed, heads, num_heads, attention_options(o, causal)),
              .norm2 = LayerNorm::init(embed, o.eps, o.dtypes),
              .mlp = Mlp::init(mlp, embed, hidden, {.activation = o.activation, .dtypes = o.dtypes})};
  block.dropout.rate = o.dropout;
  return block;
}

std::optional<Key> numbered(const std::optional<Key>& key, uint32_t number) {
  return key ? std::optional(fold_in(*key, number)) : key;
}

void check_context(const char* block, bool expected, const Array& given) {
  if (expected == !given.is_absent()) return;
  fail(ErrorKind::invalid_argument, block,
       expected ? "no context given to a block with cross-attention, expected block(x, {.context = encoded})."
                : "a context given to a block without cross-attention. Make it with {.context = Axis{...}}.");
}

}  // namespace

EncoderBlock EncoderBlock::init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                const Axis& hidden, const BlockOptions& o) {
  if (o.context)
    fail(ErrorKind::invalid_argument, "EncoderBlock",
         "context = \"{}\" given, which only a DecoderBlock reads. Leave it out.", o.context->name);
  const auto [k1, k2] = split<2>(key);
  return block_of<EncoderBlock>(k1, k2, embed, heads, num_heads, hidden, o, /*causal=*/false);
}

Array EncoderBlock::operator()(Operand x, const AttentionInputs& with) const {
  const LayerScope scope(*this, x);
  check_context("EncoderBlock", false, with.context);
  AttentionInputs inner = with;
  inner.key = numbered(with.key, 0);
  const Array y = x.array() + dropout(attention(norm1(x), inner), numbered(with.key, 1));
  return y + dropout(mlp(norm2(y)), numbered(with.key, 2));
}

DecoderBlock DecoderBlock::init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                const Axis& hidden, const BlockOptions& o) {
  const auto [k1, k2, k3] = split<3>(key);
  auto block = block_of<DecoderBlock>(k1, k2, embed, heads, num_heads, hidden, o, /*causal=*/true);
  if (!o.context) return block;
  AttentionOptions reading = attention_options(o, false);
  reading.context = o.context;
  reading.rope.reset();
  block.cross = CrossAttention{.norm = LayerNorm::init(embed, o.eps, o.dtypes),
                               .attention = MultiheadAttention::init(k3, embed, heads, num_heads, reading)};
  return block;
}

Array DecoderBlock::operator()(Operand x, const DecoderInputs& with) const {
  const LayerScope scope(*this, x);
  check_context("DecoderBlock", cross.has_value(), with.context);
  const auto key = [&](uint32_t number) { return numbered(with.key, number); };
  Array y = x.array() + dropout(attention(norm1(x), {.mask = with.mask, .key = key(0)}), key(1));
  if (cross) {
    const AttentionInputs reading{.context = with.context, .mask = with.context_mask, .key = key(2)};
    y = y + dropout(cross->attention(cross->norm(y), reading), key(3));
  }
  return y + dropout(mlp(norm2(y)), key(4));
}

Array DecoderBlock::decode(Operand x, KeyValueCache& cache, const Array& context) const {
  const LayerScope scope(*this, x);
  check_context("DecoderBlock", cross.has_value(), context);
  KeyValueCache longer = cache;
  Array y = x.array() + attention.decode(norm1(x), longer);
  if (cross) {
    MultiheadAttention reading = cross->attention;
    reading.dropout.inference = true;
    y = y + reading(cross->norm(y), {.context = context});
  }
  y = y + mlp(norm2(y));
  cache = longer;
  return y;
}

}  // namespace tessera::nn
