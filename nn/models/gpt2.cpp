// Implements GPT-2's embedding and block.
#include "nn/models/gpt2.h"

#include "nn/models/decoder_stack.h"
#include "sharding/base/fail.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/index/slicing.h"

namespace tessera::nn {

Array Gpt2Embedding::operator()(const Array& ids, int64_t start, const Array& at) const {
  const ModuleScope scope(*this);
  const Array embedded = embedding(tokens, ids, {}, vocab);
  if (!at.is_absent() && at.shape() != ids.shape())
    fail(ErrorKind::shape_mismatch, "Gpt2", "positions {} for ids {}, expected one for each.", at.type_string(),
         ids.type_string());
  if (!at.is_absent()) return embedded + embedding(positions, at);
  const int64_t end = start + ids.shape(-1), rows = positions.value.shape(0);
  if (end > rows)
    fail(ErrorKind::invalid_argument, "Gpt2", "{} tokens, expected at most {}, for which it has positions.", end, rows);
  return embedded + slice_in_dim(positions, start, end, 0);
}

Gpt2Block Gpt2Block::init(const Key& key, const DecoderConfig& c, int64_t layer) {
  const auto [k1, k2] = split<2>(key);
  return {.ln1 = detail::layer_norm_of(c),
          .attn = detail::attention_of(k1, c, layer),
          .ln2 = detail::layer_norm_of(c),
          .mlp = Mlp::init(k2, detail::embed_axis(c), detail::mlp_axis(c), detail::mlp_options_of(c))};
}

Array Gpt2Block::operator()(const Array& in, const TokenInputs& with) const {
  const ModuleScope scope(*this);
  const Array x =
      detail::constrained(in + attn(ln1(in), {.segment_ids = with.segment_ids, .segment_starts = with.segment_starts}));
  return x + mlp(ln2(x));
}

Array Gpt2Block::decode(const Array& in, KeyValueCache& cache, const DecodeInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = in + attn.decode(ln1(in), cache, {.mask = with.mask});
  return x + mlp(ln2(x));
}

void detail::init_embed(Gpt2Embedding& embed, const Key& key, const DecoderConfig& c) {
  const auto [k1, k2] = split<2>(key);
  const auto table = [&](const Key& k, const Axis& rows) {
    return Embedding::init(k, rows, embed_axis(c), init::normal(0.02), c.dtypes).tokens;
  };
  embed = {.tokens = table(k1, {"vocab", c.padded_vocab_size()}),
           .positions = table(k2, {"positions", c.max_position_embeddings}),
           .vocab = c.vocab_size};
}

Array detail::embedded(const Gpt2Embedding& embed, const DecoderConfig&, const Array& ids, int64_t start,
                       const TokenInputs& with) {
  return embed(ids, start, with.positions);
}

template struct Decoder<Gpt2Embedding, Gpt2Block, LayerNorm>;

}  // namespace tessera::nn
