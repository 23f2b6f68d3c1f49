// The validator's cases of normalization, losses, attention, dropout, convolution and pooling.
#include <cmath>

#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Arrays = const std::vector<Array>&;
using Values = const std::vector<at::Tensor>&;
using Sizes = std::vector<int64_t>;

// ---- normalization and losses

std::vector<Case> normalizations() {
  const at::Tensor x = random_tensor({4, 2, 8}, 1), scale = random_tensor({8}, 2), bias = random_tensor({8}, 3);
  return {{{"layer_norm"},
           {"layer_norm",
            {x, scale, bias},
            OURS(layer_norm(x[0], x[1], x[2])),
            THEIRS(at::layer_norm(x[0], {8}, x[1], x[2]))}},
          {{"rms_norm"},
           {"rms_norm",
            {x, scale},
            OURS(rms_norm(x[0], x[1], 1e-5)),
            THEIRS(x[0] * (x[0].square().mean(-1, true) + 1e-5).rsqrt() * x[1])}}};
}

// Weighted losses written out; label 3 is ignored.
at::Tensor losses(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& weights,
                  const CrossEntropyOptions& options) {
  const at::Tensor log = at::log_softmax(logits, -1), columns = labels.to(at::kLong).unsqueeze(-1);
  const double a = options.label_smoothing;
  const at::Tensor target = (1 - a) * log.gather(-1, columns).squeeze(-1) + a * log.mean(-1);
  const at::Tensor squares = at::logsumexp(logits, -1).square();
  return (options.z_loss * squares - target) * weights * labels.ne(3);
}

CrossEntropyOptions everything(const Array& weights) {
  return {.weights = weights, .ignore_label = 3, .label_smoothing = 0.1, .z_loss = 0.2};
}

std::vector<Case> losses_cases() {
  const at::Tensor logits = random_tensor({4, 2, 8}, 4), labels = random_integers({4, 2}, 8, 5);
  const at::Tensor weights = random_tensor({4, 2}, 22).abs();
  return {
      {{"cross_entropy"},
       {"cross_entropy",
        {logits, labels},
        OURS(cross_entropy(x[0], x[1])),
        THEIRS(at::cross_entropy_loss(x[0].reshape({8, 8}), x[1].reshape({8}).to(at::kLong)))}},
      {{"cross_entropy"},
       {"cross_entropy of labels that are ignored",
        {logits, labels},
        OURS(cross_entropy(x[0], x[1], {.ignore_label = 3})),
        THEIRS(at::cross_entropy_loss(x[0].reshape({8, 8}), x[1].reshape({8}).to(at::kLong), {}, at::Reduction::Mean,
                                      3))}},
      {{"cross_entropy"},
       {"cross_entropy with all options",
        {logits, labels, weights},
        OURS(cross_entropy(x[0], x[1], everything(x[2]))),
        THEIRS(losses(x[0], x[1], x[2], everything({})).sum() / (x[2] * x[1].ne(3)).sum())}},
      {{"cross_entropy"},
       {"cross_entropy_per_position",
        {logits, labels, weights},
        OURS(cross_entropy_per_position(x[0], x[1], everything(x[2]))),
        THEIRS(losses(x[0], x[1], x[2], everything({})))}},
      {{"cross_entropy"},
       {"cross_entropy_sum",
        {logits, labels, weights},
        [](Arrays x) {
          const WeightedSum loss = cross_entropy_sum(x[0], x[1], everything(x[2]));
          return loss.sum * loss.weight;
        },
        THEIRS(losses(x[0], x[1], x[2], everything({})).sum() * (x[2] * x[1].ne(3)).sum())}},
  };
}

// ---- the head's loss in chunks

// Chunks of three positions, which divide no block.
LinearCrossEntropyOptions chunks(const Array& weights = {}) {
  return {.weights = weights,
          .ignore_label = 3,
          .label_smoothing = 0.1,
          .z_loss = 0.2,
          .transposed = true,
          .logit_softcap = 2.0,
          .chunk = 3};
}

std::vector<Case> head_losses() {
  const at::Tensor x = random_tensor({4, 4, 4}, 23), kernel = random_tensor({4, 8}, 24),
                   labels = random_integers({4, 4}, 8, 25), weights = random_tensor({4, 4}, 26).abs();
  const auto capped = THEIRS(2 * at::tanh(at::matmul(x[0], x[1].t()) / 2));
  return {
      {{"linear_cross_entropy"},
       {"linear_cross_entropy",
        {x, kernel, labels},
        OURS(linear_cross_entropy(x[0], x[1], x[2])),
        THEIRS(at::cross_entropy_loss(at::matmul(x[0], x[1]).reshape({16, 8}), x[2].reshape({16}).to(at::kLong)))}},
      {{"linear_cross_entropy"},
       {"linear_cross_entropy of a tied embedding, with all options",
        {x, kernel.t().contiguous(), labels},
        OURS(linear_cross_entropy(x[0], x[1], x[2], chunks())),
        THEIRS(losses(capped(x), x[2], x[2].ne(3), everything({})).sum() / x[2].ne(3).sum())}},
      {{"linear_cross_entropy"},
       {"linear_cross_entropy_sum of a tied embedding, with weights",
        {x, kernel.t().contiguous(), labels, weights},
        [](Arrays x) {
          const WeightedSum loss = linear_cross_entropy_sum(x[0], x[1], x[2], chunks(x[3]));
          return loss.sum * loss.weight;
        },
        THEIRS(losses(capped(x), x[2], x[3], everything({})).sum() * (x[3] * x[2].ne(3)).sum())}},
      // The last of four devices has only padding.
      {{"linear_cross_entropy"},
       {"linear_cross_entropy of a padded kernel",
        {x, kernel, random_integers({4, 4}, 5, 27)},
        OURS(linear_cross_entropy(x[0], x[1], x[2], {.label_smoothing = 0.1, .vocab = 5, .chunk = 3})),
        [](Values x) {
          const at::Tensor logits = at::matmul(x[0], x[1].narrow(1, 0, 5)).reshape({16, 5});
          return at::cross_entropy_loss(logits, x[2].reshape({16}).to(at::kLong), {}, at::Reduction::Mean, -100, 0.1);
        }}},
  };
}

// ---- attention

at::Tensor attention(Values x, const at::Tensor& bias, const at::Tensor& mask, double scale, double cap = 0) {
  const auto heads = [&](const at::Tensor& t) {
    return t.repeat_interleave(x[0].size(2) / std::max<int64_t>(t.size(2), 1), 2).transpose(1, 2);
  };
  at::Tensor logits = at::matmul(heads(x[0]), heads(x[1]).transpose(-1, -2)) * scale;
  if (cap > 0) logits = at::tanh(logits / cap) * cap;
  if (bias.defined()) logits = logits + bias;
  if (mask.defined()) logits = at::where(mask, logits, -1e30);
  return at::matmul(at::softmax(logits, -1), heads(x[2])).transpose(1, 2);
}

at::Tensor before(int64_t queries, int64_t keys, int64_t offset) {
  return at::ones({queries, keys}, at::kBool).tril(offset);
}

Case attention_case(const std::string& what, const Shape& query, const Shape& keys,
                    const DotProductAttentionOptions& options, const at::Tensor& mask = {}, double scale = 0) {
  return {{"dot_product_attention"},
          {what,
           {random_tensor(query, 6), random_tensor(keys, 7), random_tensor(keys, 8)},
           OURS(dot_product_attention(x[0], x[1], x[2], options)),
           THEIRS(attention(x, {}, mask, scale ? scale : 1 / std::sqrt(query.back())))}};
}

// Keys at a distance below `window`.
at::Tensor near(int64_t queries, int64_t keys, int64_t offset, int64_t window) {
  const at::Tensor from = at::arange(queries).unsqueeze(1) + offset, to = at::arange(keys);
  return (from - to).abs().lt(window);
}

Case capped_attention() {
  const Shape heads{4, 4, 4, 2}, groups{4, 4, 2, 2};
  return {{"dot_product_attention"},
          {"causal attention with capped logits",
           {random_tensor(heads, 6), random_tensor(groups, 7), random_tensor(groups, 8)},
           OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true, .scale = 2, .softcap = 0.7})),
           THEIRS(attention(x, {}, before(4, 4, 0), 2, 0.7))}};
}

Case attention_of_segments() {
  const Shape heads{4, 4, 4, 2};
  return {{"dot_product_attention"},
          {"attention within segments and a window",
           {random_tensor(heads, 6), random_tensor(heads, 7), random_tensor(heads, 8), random_integers({4, 4}, 2, 9)},
           OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true, .window = 3, .segment_ids = x[3]})),
           [](Values x) {
             const at::Tensor same = x[3].unsqueeze(2).eq(x[3].unsqueeze(1)).unsqueeze(1);
             return attention(x, {}, same.logical_and(before(4, 4, 0)).logical_and(near(4, 4, 0, 3)), 1 / std::sqrt(2));
           }}};
}

// Throws as the operation does, so that random programs draw neither.
at::Tensor ids_of(const at::Tensor& starts) {
  TORCH_CHECK(starts.diff(1, 1).ge(0).all().item<bool>(), "starts decrease");
  return at::searchsorted(starts, at::arange(4).expand({starts.size(0), 4}).contiguous(), true, /*right=*/true);
}

Case attention_by_starts() {
  const Shape heads{4, 4, 4, 2};
  const at::Tensor starts = std::get<0>(at::sort(random_integers({4, 2}, 5, 9), 1));
  return {{"dot_product_attention"},
          {"attention within segments that begin here",
           {random_tensor(heads, 6), random_tensor(heads, 7), random_tensor(heads, 8), starts},
           OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true, .segment_starts = x[3]})),
           [](Values x) {
             const at::Tensor ids = ids_of(x[3]), same = ids.unsqueeze(2).eq(ids.unsqueeze(1)).unsqueeze(1);
             return attention(x, {}, same.logical_and(before(4, 4, 0)), 1 / std::sqrt(2));
           }}};
}

Case ids_of_starts() {
  return {{"segment_ids"},
          {"segment ids of starts",
           {std::get<0>(at::sort(random_integers({4, 2}, 5, 9), 1))},
           OURS(tessera::detail::segment_ids_of(x[0], 4)),
           THEIRS(ids_of(x[0]))}};
}

// The third position attends to no key.
at::Tensor some_seen() {
  at::Tensor seen = random_integers({4, 1, 4, 4}, 2, 9).to(at::kBool);
  seen.select(2, 1).fill_(true);
  return seen.index_fill(2, at::full({1}, 2, at::kLong), false);
}

Case masked_attention() {
  const Shape heads{4, 4, 4, 2};
  return {{"dot_product_attention"},
          {"attention under a mask",
           {random_tensor(heads, 6), random_tensor(heads, 7), random_tensor(heads, 8), some_seen()},
           OURS(dot_product_attention(x[0], x[1], x[2], {.mask = x[3]})),
           THEIRS(attention(x, {}, x[3], 1 / std::sqrt(2)))}};
}

Case biased_attention() {
  return {{"dot_product_attention"},
          {"causal attention of groups with a bias",
           {random_tensor({2, 4, 8, 2}, 6), random_tensor({2, 4, 4, 2}, 7), random_tensor({2, 4, 4, 2}, 8),
            random_tensor({8, 4, 4}, 10)},
           OURS(dot_product_attention(x[0], x[1], x[2], {.bias = x[3], .causal = true})),
           THEIRS(attention(x, x[3], before(4, 4, 0), 1 / std::sqrt(2)))}};
}

// Two kv heads on four devices, with a different mask for each head.
Case masked_heads_apart() {
  return {{"dot_product_attention"},
          {"attention of kv heads on more devices under a mask",
           {random_tensor({2, 2, 8, 2}, 6), random_tensor({2, 2, 2, 2}, 7), random_tensor({2, 2, 2, 2}, 8),
            random_tensor({1, 8, 1, 2}, 10).gt(-0.5)},
           OURS(dot_product_attention(x[0], x[1], x[2], {.mask = x[3]})),
           THEIRS(attention(x, {}, x[3], 1 / std::sqrt(2)))}};
}

// Attention with another key of zeros, whose logit is the head's sink.
at::Tensor attention_with_sinks(Values x, const at::Tensor& mask) {
  const auto longer = [](const at::Tensor& t) { return at::constant_pad_nd(t, {0, 0, 0, 0, 0, 1}); };
  const at::Tensor bias = at::constant_pad_nd(x[3].view({1, -1, 1, 1}), {x[1].size(1), 0});
  return attention({x[0], longer(x[1]), longer(x[2])}, bias, at::constant_pad_nd(mask, {0, 1}, 1), 1 / std::sqrt(2));
}

Case attention_of_sinks(const std::string& what, const Shape& query, const Shape& keys,
                        const DotProductAttentionOptions& options, const at::Tensor& mask) {
  const auto with = [options](Arrays x) {
    DotProductAttentionOptions all = options;
    all.sinks = x[3];
    return dot_product_attention(x[0], x[1], x[2], all);
  };
  return {{"dot_product_attention"},
          {what,
           {random_tensor(query, 6), random_tensor(keys, 7), random_tensor(keys, 8), random_tensor({query[2]}, 28)},
           with,
           THEIRS(attention_with_sinks(x, mask))}};
}

// Keys of the query's own chunk.
at::Tensor of_chunk(int64_t queries, int64_t keys, int64_t offset, int64_t chunk) {
  const auto number = [&](const at::Tensor& t) { return t.floor_divide(chunk); };
  return number(at::arange(queries).unsqueeze(1) + offset).eq(number(at::arange(keys)));
}

Case wide_values() {
  return {{"dot_product_attention"},
          {"attention to values of more features than keys",
           {random_tensor({2, 4, 4, 2}, 6), random_tensor({2, 4, 4, 2}, 7), random_tensor({2, 4, 4, 3}, 8)},
           OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true})),
           THEIRS(attention(x, {}, before(4, 4, 0), 1 / std::sqrt(2)))}};
}

// Converts the pairs 2 i, 2 i + 1 of the last dimension to the pairs i, i + half (by a stride of 2), or back.
at::Tensor repaired(const at::Tensor& x, int64_t rows) {
  return x.unflatten(-1, {rows, x.size(-1) / rows}).transpose(-1, -2).flatten(-2);
}

// Rotates the first `dims` coordinates of each head, at positions (..., seq).
at::Tensor rotated(const at::Tensor& x, const at::Tensor& positions, int64_t dims, double base) {
  const int64_t half = dims / 2;
  const at::Tensor frequency = at::pow(base, -at::arange(half, at::kDouble) / static_cast<double>(half));
  const at::Tensor angle = positions.to(at::kDouble).unsqueeze(-1).unsqueeze(-1) * frequency;
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat(
      {a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), x.narrow(-1, dims, x.size(-1) - dims)},
      -1);
}

// The base for the largest of these positions, after training on 8.
double dynamic_base(const at::Tensor& positions) {
  const double length = std::max<double>(8, static_cast<double>(positions.max().item<int64_t>() + 1));
  return 30 * std::pow(3 * length / 8 - 2, 4.0 / (4 - 2));
}

std::vector<Case> rotations() {
  const at::Tensor x = random_tensor({2, 4, 4, 4}, 11);
  const RotaryScaling dynamic{.kind = RotaryScaling::dynamic, .factor = 3, .original_positions = 8};
  return {{{"rotary_embedding"},
           {"rotary_embedding", {x}, OURS(rotary_embedding(x[0])), THEIRS(rotated(x[0], at::arange(4), 4, 10000))}},
          {{"rotary_embedding"},
           {"rotary_embedding of half a head at positions of each token",
            {x, random_integers({2, 4}, 50, 12)},
            OURS(rotary_embedding(x[0], {.positions = x[1], .base = 30, .dims = 2})),
            THEIRS(rotated(x[0], x[1], 2, 30))}},
          {{"rotary_embedding"},
           {"rotary_embedding of adjacent coordinates",
            {x, random_integers({2, 4}, 50, 12)},
            OURS(rotary_embedding(x[0], {.positions = x[1], .base = 30, .interleaved = true})),
            THEIRS(repaired(rotated(repaired(x[0], 2), x[1], 4, 30), 2))}},
          {{"rotary_embedding"},
           {"rotary_embedding at positions of all rows",
            {x, random_integers({4}, 50, 12)},
            OURS(rotary_embedding(x[0], {.positions = x[1], .scaling = {.kind = RotaryScaling::linear, .factor = 2}})),
            THEIRS(rotated(x[0], x[1] / 2.0, 4, 10000))}},
          {{"rotary_embedding"},
           {"rotary_embedding by the largest of all positions",
            {x, random_integers({2, 4}, 50, 12)},
            OURS(rotary_embedding(x[0], {.positions = x[1], .base = 30, .scaling = dynamic})),
            THEIRS(rotated(x[0], x[1], 4, dynamic_base(x[1])))}}};
}

std::vector<Case> attentions() {
  const Shape heads{4, 4, 4, 2}, groups{4, 4, 2, 2};
  std::vector<Case> cases{
      attention_case("attention", heads, heads, {}),
      attention_case("causal attention of groups", heads, groups, {.causal = true}, before(4, 4, 0)),
      attention_case("attention after a cache", {4, 2, 4, 2}, groups, {.causal = true, .offset = 2}, before(2, 4, 2)),
      attention_case("attention with a scale", heads, heads, {.scale = 0.3}, {}, 0.3),
      attention_case("attention of a window", heads, groups, {.window = 2}, near(4, 4, 0, 2)),
      attention_case("attention of a window after a cache", {4, 2, 4, 2}, groups,
                     {.causal = true, .offset = 2, .window = 2}, before(2, 4, 2).logical_and(near(2, 4, 2, 2))),
      attention_case("attention in a ring", heads, groups, {.causal = true, .context = ContextParallelism::ring},
                     before(4, 4, 0)),
      attention_case("attention to gathered keys", heads, groups,
                     {.causal = true, .window = 3, .context = ContextParallelism::gather},
                     before(4, 4, 0).logical_and(near(4, 4, 0, 3))),
      attention_case("attention of a chunk", heads, groups, {.causal = true, .chunk = 3},
                     before(4, 4, 0).logical_and(of_chunk(4, 4, 0, 3))),
      attention_case("attention of a chunk after a cache", {4, 2, 4, 2}, groups,
                     {.causal = true, .offset = 2, .chunk = 3}, before(2, 4, 2).logical_and(of_chunk(2, 4, 2, 3))),
      attention_case("attention of a chunk in a ring", heads, groups,
                     {.causal = true, .chunk = 3, .context = ContextParallelism::ring},
                     before(4, 4, 0).logical_and(of_chunk(4, 4, 0, 3))),
      attention_case("attention of a chunk to gathered keys", heads, heads,
                     {.chunk = 3, .context = ContextParallelism::gather}, of_chunk(4, 4, 0, 3)),
      attention_of_sinks("causal attention with sinks", heads, groups, {.causal = true}, before(4, 4, 0)),
      attention_of_sinks("attention of a window with sinks, to gathered keys", heads, heads,
                         {.window = 2, .context = ContextParallelism::gather}, near(4, 4, 0, 2)),
      attention_of_sinks("attention of kv heads on more devices with sinks", {2, 2, 8, 2}, {2, 2, 2, 2},
                         {.causal = true}, before(2, 2, 0)),
      wide_values(),
      capped_attention(),
      attention_of_segments(),
      attention_by_starts(),
      ids_of_starts(),
      masked_attention(),
      biased_attention(),
      masked_heads_apart()};
  for (Case& rotation : rotations()) cases.push_back(std::move(rotation));
  return cases;
}

// ---- dropout

Case dropped() {
  const Shape shape{4, 8};
  return {{"dropout"},
          {"dropout",
           {random_tensor(shape, 12)},
           OURS(dropout(Key(5), x[0], 0.3)),
           THEIRS(x[0] * to_tensor(bernoulli(Key(5), 0.7, shape)) / 0.7)}};
}

// ---- convolution and pooling

std::vector<Case> convolutions() {
  const ConvDimensionNumbers last{"NHWC", "HWIO", "NHWC"};
  const auto first = [](const at::Tensor& x) { return x.permute({0, 3, 1, 2}); };
  return {
      {{"conv_general_dilated"},
       {"conv, features last",
        {random_tensor({4, 3, 4, 4}, 13), random_tensor({3, 3, 4, 8}, 14)},
        OURS(conv_general_dilated(x[0], x[1], {1, 1}, "SAME", {.dimension_numbers = last})),
        THEIRS(at::conv2d(first(x[0]), x[1].permute({3, 2, 0, 1}), {}, 1, 1).permute({0, 2, 3, 1}))}},
      {{"conv_general_dilated"},
       {"conv of groups, strided and dilated",
        {random_tensor({2, 8, 9}, 15), random_tensor({8, 2, 3}, 16)},
        OURS(conv_general_dilated(x[0], x[1], {2}, {{1, 2}}, {.rhs_dilation = {2}, .feature_group_count = 4})),
        THEIRS(at::conv1d(at::constant_pad_nd(x[0], {1, 2}), x[1], {}, Sizes{2}, Sizes{0}, Sizes{2}, 4))}},
      {{"conv_general_dilated"},
       {"transposed conv of volumes",
        {random_tensor({2, 4, 2, 3, 2}, 17), random_tensor({4, 4, 2, 2, 2}, 18)},
        OURS(conv_general_dilated(x[0], x[1], {1, 1, 1}, {{1, 1}, {1, 1}, {1, 1}}, {.lhs_dilation = {2, 3, 1}})),
        THEIRS(at::conv_transpose3d(x[0], x[1].flip({2, 3, 4}).transpose(0, 1), {}, Sizes{2, 3, 1}))}},
  };
}

std::vector<Case> pools() {
  return {
      {{"max_pool"},
       {"max_pool",
        {random_tensor({4, 5, 4, 4}, 19)},
        OURS(max_pool(x[0], {2, 3}, {2, 1}, "SAME")),
        [](Values x) {
          const at::Tensor rows = at::constant_pad_nd(x[0].permute({0, 3, 1, 2}), {1, 1, 0, 1}, -INFINITY);
          return at::max_pool2d(rows, {2, 3}, {2, 1}).permute({0, 2, 3, 1});
        }}},
      {{"avg_pool"},
       {"avg_pool of a row",
        {random_tensor({2, 4, 6, 4}, 20)},
        OURS(avg_pool(x[0], {3}, {2}, {{1, 0}})),
        [](Values x) {
          const at::Tensor rows = at::constant_pad_nd(x[0].transpose(2, 3), {1, 0}).reshape({8, 4, 7});
          return at::avg_pool1d(rows, 3, 2).reshape({2, 4, 4, 3}).transpose(2, 3);
        }}},
      {{"avg_pool"},
       {"avg_pool of volumes, of what is there",
        {random_tensor({2, 2, 3, 2, 4}, 21)},
        OURS(avg_pool(x[0], {2, 2, 2}, {}, "SAME", false)),
        [](Values x) {
          const at::Tensor volumes = at::constant_pad_nd(x[0].movedim(-1, 1), {0, 1, 0, 1, 0, 1});
          const at::Tensor ones = at::constant_pad_nd(at::ones({1, 1, 2, 3, 2}, at::kDouble), {0, 1, 0, 1, 0, 1});
          return (at::avg_pool3d(volumes, 2, 1) / at::avg_pool3d(ones, 2, 1)).movedim(1, -1);
        }}},
  };
}

}  // namespace

std::vector<Case> neural_cases() {
  std::vector<Case> all = normalizations();
  all.push_back(dropped());
  for (const auto& some : {losses_cases(), head_losses(), attentions(), convolutions(), pools()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace tessera::testing
