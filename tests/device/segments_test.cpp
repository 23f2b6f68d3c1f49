// Attention by segments on a device whose flash attention is a stand-in on the CPU with LibTorch's schema.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <vector>

#include "data/batches/packed_tokens.h"
#include "nn/models/causal_lm.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations/neural/attention.h"
#include "sharding/runtime/hardware.h"
#include "tests/device/pretended_device.h"
#include "tests/device/waits.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::segments_test {
namespace {

using namespace tessera::testing;

const std::string there = pretended_device();

// ---- the stand-ins

int64_t forward_calls = 0, backward_calls = 0;

// One segment of the stacked rows: its tokens, and what each of them sees, (tokens, tokens).
struct Segment {
  int64_t first, tokens;
  at::Tensor seen;
};

std::vector<Segment> segments(const at::Tensor& offsets, int64_t total, int64_t longest, bool causal,
                              std::optional<int64_t> left, std::optional<int64_t> right) {
  TORCH_CHECK(offsets.scalar_type() == at::kInt && offsets.is_contiguous() && offsets[0].item<int>() == 0 &&
                  offsets[-1].item<int>() == total,
              "offsets");
  std::vector<Segment> all;
  for (int64_t i = 0; i + 1 < offsets.numel(); ++i) {
    const int64_t first = offsets[i].item<int>(), tokens = offsets[i + 1].item<int>() - first;
    TORCH_CHECK(tokens >= 0 && tokens <= longest, "a segment of ", tokens, " tokens");
    if (tokens == 0) continue;
    at::Tensor seen = at::ones({tokens, tokens}, at::kBool);
    if (causal) right = 0;
    if (right) seen = seen.tril(*right);
    if (left) seen = seen.triu(-*left);
    all.push_back({first, tokens, seen});
  }
  return all;
}

// The heads of one segment, first and in float32; kv heads are repeated for their group.
at::Tensor heads_of(const at::Tensor& x, const Segment& s, int64_t heads) {
  const at::Tensor mine = x.narrow(0, s.first, s.tokens).transpose(0, 1).to(at::kFloat);
  return mine.repeat_interleave(heads / mine.size(0), 0);
}

// Puts back the heads of one segment, and sums over groups.
void put(const at::Tensor& to, const Segment& s, const at::Tensor& heads) {
  const int64_t of_kv = to.size(1), group = heads.size(0) / of_kv;
  const at::Tensor sums = heads.view({of_kv, group, s.tokens, -1}).sum(1).transpose(0, 1);
  to.narrow(0, s.first, s.tokens).copy_(sums);
}

at::Tensor logits_of(const at::Tensor& q, const at::Tensor& k, const Segment& s, double scale) {
  return (at::matmul(q, k.transpose(1, 2)) * scale).masked_fill(s.seen.logical_not(), -INFINITY);
}

double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(2))));
}

void check_operands(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  for (const at::Tensor& x : {query, key, value})
    TORCH_CHECK(x.dim() == 3 && x.stride(2) == 1 && x.size(2) % 8 == 0 && x.size(2) <= 256 && x.itemsize() == 2, "x");
  TORCH_CHECK(query.size(1) % key.size(1) == 0 && key.sizes() == value.sizes(), "heads");
}

using Ends = const std::optional<at::Tensor>&;
using Limit = std::optional<c10::SymInt>;

std::optional<int64_t> number(const Limit& limit) { return limit ? std::optional(limit->expect_int()) : std::nullopt; }

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, Ends offsets, Ends key_offsets,
    c10::SymInt longest, c10::SymInt, double dropout, bool causal, bool, std::optional<double> scale, Limit left,
    Limit right, Ends, Ends) {
  ++forward_calls;
  check_operands(query, key, value);
  TORCH_CHECK(dropout == 0 && at::equal(*offsets, *key_offsets), "arguments");
  const int64_t heads = query.size(1);
  const at::Tensor out = at::full_like(query, NAN),
                   logsumexp = at::full({heads, query.size(0)}, NAN, query.options().dtype(at::kFloat));
  for (const Segment& s :
       segments(*offsets, query.size(0), longest.expect_int(), causal, number(left), number(right))) {
    const at::Tensor logits = logits_of(heads_of(query, s, heads), heads_of(key, s, heads), s, scale_of(query, scale));
    put(out, s, at::matmul(logits.softmax(-1), heads_of(value, s, heads)));
    logsumexp.narrow(1, s.first, s.tokens).copy_(logits.logsumexp(-1));
  }
  const at::Tensor none = at::empty({0}, query.options());
  return {out, logsumexp, at::empty({2}, query.options().dtype(at::kLong)), none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& gradient, const at::Tensor& query,
                                                        const at::Tensor& key, const at::Tensor& value,
                                                        const at::Tensor& out, const at::Tensor& logsumexp,
                                                        const at::Tensor& offsets, const at::Tensor&,
                                                        c10::SymInt longest, c10::SymInt, double, bool causal,
                                                        const at::Tensor&, const at::Tensor&,
                                                        std::optional<double> scale, Limit left, Limit right) {
  ++backward_calls;
  check_operands(query, key, value);
  const int64_t heads = query.size(1);
  const double by = scale_of(query, scale);
  const at::Tensor dq = at::full_like(query, NAN), dk = at::full_like(key, NAN), dv = at::full_like(value, NAN);
  for (const Segment& s : segments(offsets, query.size(0), longest.expect_int(), causal, number(left), number(right))) {
    const at::Tensor q = heads_of(query, s, heads), k = heads_of(key, s, heads), g = heads_of(gradient, s, heads);
    const at::Tensor p = (logits_of(q, k, s, by) - logsumexp.narrow(1, s.first, s.tokens).unsqueeze(-1)).exp();
    const at::Tensor dot = (g * heads_of(out, s, heads)).sum(-1, true);
    const at::Tensor dlogits = p * (at::matmul(g, heads_of(value, s, heads).transpose(1, 2)) - dot) * by;
    put(dq, s, at::matmul(dlogits, k));
    put(dk, s, at::matmul(dlogits.transpose(1, 2), q));
    put(dv, s, at::matmul(p.transpose(1, 2), g));
  }
  return {dq, dk, dv};
}

// While the object exists, the pretended device counts as an H100, and the stand-ins are its kernels.
class WithFlashAttention {
 public:
  WithFlashAttention() : library_(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library_.impl("_flash_attention_forward", &forward);
    library_.impl("_flash_attention_backward", &backward);
    tessera::detail::compute_capability_of(c10::Device(there).type()) = [](c10::DeviceIndex) { return 90; };
    forward_calls = backward_calls = 0;
  }
  ~WithFlashAttention() { tessera::detail::compute_capability_of(c10::Device(there).type()) = nullptr; }
  WithFlashAttention(const WithFlashAttention&) = delete;

 private:
  torch::Library library_;
};

// ---- the operation

constexpr int64_t batch = 4, seq = 12;
const at::Tensor starts = at::tensor({0, 12, 12, 12, 0, 5, 9, 12, 0, 1, 2, 3, 4, 4, 10, 12}).view({batch, 4});

struct Case {
  DotProductAttentionOptions options;
  int64_t kv_heads = 4;
  at::ScalarType type = at::kBFloat16;
  bool by_flash = true;
};

Step attended(const Mesh& mesh, const PartitionSpec& spec, const Case& c) {
  const auto input = [&](int64_t heads, int seed) {
    return placed(random_tensor({batch, seq, heads, 8}, seed).to(c.type), mesh, spec);
  };
  DotProductAttentionOptions options = c.options;
  options.segment_starts = device_put(from_tensor(starts), NamedSharding(mesh, P{}));
  return step({input(4, 1), input(c.kv_heads, 2), input(c.kv_heads, 3)}, [options](const std::vector<Array>& x) {
    const Array y = dot_product_attention(x[0], x[1], x[2], options);
    const Array weights = from_tensor(cotangent(at::empty(y.shape())));
    return sum(astype(y, float32) * device_put(astype(weights, float32), NamedSharding(y.sharding().mesh(), P{})));
  });
}

TEST(DeviceSegments, FlashAttentionEqualsTheMask) {
  const std::vector<Case> cases{{{.causal = true}},
                                {{}},
                                {{.causal = true}, 2},
                                {{.causal = true}, 1, at::kHalf},
                                {{.causal = true, .window = 3}},
                                {{.window = 2}, 2},
                                {{.causal = true, .window = 1}},
                                {{.causal = true, .window = INT64_MAX}},
                                {{.causal = true, .scale = 0.3}},
                                {{.causal = true, .softcap = 0.7}, 4, at::kBFloat16, false},
                                {{.causal = true, .scale = -0.3}, 4, at::kBFloat16, false},
                                {{.causal = true}, 4, at::kFloat, false}};
  const WithFlashAttention scope;
  for (const Case& c : cases) {
    const Step want = attended(make_mesh({{"one", 1}}), P{}, c);
    EXPECT_EQ(std::exchange(forward_calls, 0), 0) << "on the CPU";
    struct Placement {
      std::vector<MeshAxis> mesh;
      PartitionSpec spec;
    };
    for (const auto& [axes, spec] : {Placement{{{"one", 1}}, P{}}, Placement{{{"a", 2}}, P{"a"}},
                                     Placement{{{"a", 3}}, P{SpecEntry("a", Uneven::pad)}}}) {
      const Mesh mesh = make_mesh(axes, {.device = there});
      EXPECT_LT(difference(attended(mesh, spec, c), want), c.type == at::kFloat ? 1e-4 : 0.1);
      EXPECT_EQ(forward_calls > 0, c.by_flash);
      EXPECT_EQ(std::exchange(backward_calls, 0), std::exchange(forward_calls, 0));
    }
  }
}

TEST(DeviceSegments, StartsOutOfRangeAreReportedLate) {
  const WithFlashAttention scope;
  const NamedSharding here(make_mesh({{"one", 1}}, {.device = there}), P{});
  const Array x = device_put(ones({1, 4, 2, 8}, bfloat16), here);
  for (const int64_t wrong : {int64_t{7}, (int64_t{1} << 32) + 2}) {
    const Array begin = device_put(array<int64_t>({0, wrong}, {1, 2}), here);
    const Array y = dot_product_attention(x, x, x, {.segment_starts = begin});
    expect_error(ErrorKind::invalid_argument, fmt::format("segment_starts from 0 to {} given, expected 0 to 4", wrong),
                 [&] { (void)to_tensor(y); });
  }
}

// ---- models

data::PackedTokens packed_batch() {
  std::vector<data::PackedRow<int32_t>> rows;
  for (const std::vector<int32_t>& documents : {std::vector<int32_t>{3, 5, 1}, {9}, {1, 1, 7}, {4, 4}}) {
    data::PackedRow<int32_t> row;
    for (size_t d = 0; d < documents.size(); ++d)
      for (int32_t t = 0; t < documents[d]; ++t) {
        row.tokens.push_back((7 * t + static_cast<int32_t>(d)) % 32);
        row.segment_ids.push_back(static_cast<int32_t>(d) + 1), row.positions.push_back(t);
      }
    row.tokens.resize(9), row.segment_ids.resize(9), row.positions.resize(9);
    rows.push_back(row);
  }
  return data::PackedTokensBatcher{.max_segments = 4}(rows);
}

struct Kernels : DeviceWatcher {
  Kernels() { watch_device(this); }
  ~Kernels() override { watch_device(nullptr); }
  void kernel(const std::string&, std::function<void()>) override { ++count; }
  void allocation(const at::Tensor&) override {}
  int64_t count = 0;
};

// The waits and kernels of the second of two steps.
struct Counts {
  int64_t waits = 0, kernels = 0;
};

at::Tensor loss_and_gradients(const char* family, const Mesh& mesh, bool remat, bool by_starts, Counts* counts,
                              int64_t layers = 2) {
  const MeshRules mesh_rules(mesh, nn::decoder_rules(mesh));
  const nn::DecoderConfig config = nn::config_of_family(family, {.vocab_size = 32,
                                                                 .hidden_size = 32,
                                                                 .num_hidden_layers = layers,
                                                                 .num_attention_heads = 4,
                                                                 .num_key_value_heads = 4,
                                                                 .head_dim = 8,
                                                                 .intermediate_size = 64,
                                                                 .max_position_embeddings = 16});
  nn::CausalLM model = nn::filter_shard(nn::CausalLM::init(Key(1), config), mesh_rules);
  model.remat = remat;
  const data::PackedTokens batch = data::from_process_local(packed_batch(), mesh_rules);
  const auto loss_of = [&](const nn::CausalLM& m, const data::PackedTokens& b) {
    nn::TokenInputs with{.positions = b.positions};
    (by_starts ? with.segment_starts : with.segment_ids) = by_starts ? b.segment_starts : b.segment_ids;
    return cross_entropy(astype(nn::cast(m, bfloat16)(b.inputs, with), float32), b.targets, {.weights = b.weights});
  };
  std::vector<at::Tensor> values;
  for (int i = 0; i < 2; ++i) {
    Waits waits;
    const auto kernels = std::make_unique<Kernels>();
    auto [loss, gradients] = nn::value_and_grad(loss_of)(model, batch);
    *counts = {waits.all(), kernels->count};
    values = {to_tensor(loss).cpu().view({1})};
    for (const nn::Leaf& leaf : nn::leaves(gradients)) values.push_back(to_tensor(*leaf.value).cpu().flatten());
  }
  return at::cat(values).to(at::kDouble);
}

void expect_equal_gradients(const char* family) {
  Counts counts;
  const at::Tensor want = loss_and_gradients(family, make_mesh({{"data", 1}}), false, false, &counts);
  const WithFlashAttention scope;
  for (const bool remat : {false, true})
    for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"data", 1}}, {{"data", 2}, {"model", 2}}}) {
      forward_calls = 0;
      const at::Tensor got = loss_and_gradients(family, make_mesh(axes, {.device = there}), remat, true, &counts);
      EXPECT_GT(forward_calls, 0);
      EXPECT_EQ(counts.waits, 0);
      EXPECT_LT((got - want).abs().max().item<double>(), 0.05 * want.abs().max().item<double>());
    }
}

// The kernels of one block, forward and backward.
int64_t kernels_of_a_block(const char* family, bool by_starts) {
  Counts two, three;
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  loss_and_gradients(family, mesh, false, by_starts, &two, 2);
  loss_and_gradients(family, mesh, false, by_starts, &three, 3);
  return three.kernels - two.kernels;
}

TEST(DeviceSegments, ABlockRunsFewerKernelsThanWithAMask) {
  const int64_t gpt2 = kernels_of_a_block("gpt2", false), llama = kernels_of_a_block("llama", false);
  const WithFlashAttention scope;
  EXPECT_LE(kernels_of_a_block("gpt2", true), gpt2 - 36);
  EXPECT_LE(kernels_of_a_block("llama", true), llama - 36);
}

TEST(DeviceSegments, ModelsOnPackedRows) {
  expect_equal_gradients("llama");
  expect_equal_gradients("gpt2");
}

}  // namespace
}  // namespace tessera::segments_test
