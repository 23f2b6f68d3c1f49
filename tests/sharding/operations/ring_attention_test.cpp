// Attention over a sharded sequence: a ring, a gather and an exchange give the result of one device.
#include "sharding/accounting/forecast.h"
#include "sharding/operations/neural/attention.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::ring_attention_test {
namespace {

using namespace tessera::testing;
using Context = ContextParallelism;

struct Sizes {
  int64_t batch = 2, seq = 24, heads = 6, kv_heads = 6, dim = 4, value_dim = 4;
};

struct Inputs {
  at::Tensor query, key, value;

  explicit Inputs(const Sizes& s, at::ScalarType type = at::kDouble)
      : query(random_tensor({s.batch, s.seq, s.heads, s.dim}, 1).to(type)),
        key(random_tensor({s.batch, s.seq, s.kv_heads, s.dim}, 2).to(type)),
        value(random_tensor({s.batch, s.seq, s.kv_heads, s.value_dim}, 3).to(type)) {}
  std::vector<Array> on(const Mesh& mesh, const PartitionSpec& spec) const {
    return {placed(query, mesh, spec), placed(key, mesh, spec), placed(value, mesh, spec)};
  }
};

// A loss that weights every element of the result differently.
Model attention_under(const DotProductAttentionOptions& options) {
  return [options](const std::vector<Array>& x) {
    const Array y = dot_product_attention(x[0], x[1], x[2], options);
    return sum(y * astype(from_tensor(cotangent(at::empty(y.shape()))), y.dtype()));
  };
}

// A step whose values are not read, so that it runs on abstract meshes.
void run_step(const std::vector<Array>& x, const DotProductAttentionOptions& options) {
  Tape tape(x);
  tape.gradients(attention_under(options)(tape.shadows()));
}

Step on_one_device(const Inputs& inputs, DotProductAttentionOptions options) {
  options.context = Context::exchange;
  return step(inputs.on(make_mesh({{"one", 1}}), P{}), attention_under(options));
}

struct Row {
  const char* name;
  Sizes sizes;
  DotProductAttentionOptions options = {};
  bool in_segments = false;
};

std::vector<Row> rows() {
  return {{"all see all", {}},
          {"causal", {}, {.causal = true}},
          {"causal, an odd number of tokens on a device", {.seq = 72}, {.causal = true}},
          {"of groups", {.heads = 6, .kv_heads = 2}, {.causal = true}},
          {"one kv head, other values", {.heads = 3, .kv_heads = 1, .value_dim = 5}, {.causal = true, .scale = 0.7}},
          {"a window", {}, {.causal = true, .window = 5}},
          {"a window of one", {}, {.causal = true, .window = 1}},
          {"a window over both sides", {}, {.window = 4}},
          {"a window beyond the text", {}, {.causal = true, .window = INT64_MAX}},
          {"a scale below zero", {}, {.causal = true, .scale = -0.7}},
          {"capped logits", {.kv_heads = 3}, {.causal = true, .softcap = 0.7}},
          {"segments", {.kv_heads = 2}, {.causal = true}, true},
          {"segments under a window", {}, {.causal = true, .window = 3}, true},
          {"segments, all see all", {}, {}, true}};
}

class ContextParallel : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Devices, ContextParallel, ::testing::Values(2, 3, 4, 8));

TEST_P(ContextParallel, EqualsAttentionOnOneDevice) {
  const Mesh mesh = make_mesh({{"seq", GetParam()}});
  for (const Row& row : rows()) {
    const Inputs inputs(row.sizes);
    DotProductAttentionOptions options = row.options;
    if (row.in_segments) options.segment_ids = from_tensor(random_integers({row.sizes.batch, row.sizes.seq}, 3, 9));
    const Step expected = on_one_device(inputs, options);
    for (const Context context : {Context::ring, Context::gather, Context::automatic}) {
      options.context = context;
      const Step got = step(inputs.on(mesh, P{none, "seq"}), attention_under(options));
      EXPECT_LT(difference(got, expected), 1e-11) << row.name << ", context " << static_cast<int>(context);
    }
  }
}

TEST_P(ContextParallel, WithShardedBatchAndHeads) {
  const Mesh mesh = make_mesh({{"data", 2}, {"seq", GetParam()}, {"model", 2}});
  const Inputs inputs({.batch = 4, .heads = 4, .kv_heads = 2});
  const DotProductAttentionOptions options{.causal = true, .context = Context::ring};
  const Step got = step(inputs.on(mesh, P{"data", "seq", "model"}), attention_under(options));
  EXPECT_LT(difference(got, on_one_device(inputs, options)), 1e-11);
}

TEST(RingAttention, OverTwoAxesInEitherOrder) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 3}});
  const Inputs inputs(Sizes{});
  const DotProductAttentionOptions options{.causal = true, .context = Context::ring};
  for (const PartitionSpec& spec : {P{none, {"a", "b"}}, P{none, {"b", "a"}}})
    EXPECT_LT(difference(step(inputs.on(mesh, spec), attention_under(options)), on_one_device(inputs, options)), 1e-11);
}

TEST(RingAttention, OfNothingIsNothing) {
  const Mesh mesh = make_mesh({{"seq", 2}});
  for (const Shape& shape : {Shape{2, 0, 3, 4}, Shape{0, 4, 3, 4}}) {
    const Array x = device_put(zeros(shape), NamedSharding(mesh, P{none, "seq"}));
    EXPECT_EQ(dot_product_attention(x, x, x, {.causal = true, .context = Context::ring}).shape(), shape);
  }
}

TEST(RingAttention, InSinglePrecisionAndInHalf) {
  const Mesh mesh = make_mesh({{"seq", 4}});
  const DotProductAttentionOptions options{.causal = true, .context = Context::ring};
  const Step exact = on_one_device(Inputs(Sizes{}), options);
  for (const auto& [type, tolerance] : {std::pair(at::kFloat, 1e-5), std::pair(at::kBFloat16, 0.1)}) {
    const Step got = step(Inputs(Sizes{}, type).on(mesh, P{none, "seq"}), attention_under(options));
    EXPECT_LT(difference(got, exact), tolerance);
  }
}

TEST(RingAttention, TwiceDifferentiatedGathers) {
  const Mesh mesh = make_mesh({{"seq", 2}});
  const Inputs inputs({.seq = 4, .heads = 2, .kv_heads = 2});
  const auto slope = [](Context context) {
    return [context](const std::vector<Array>& x) {
      Tape inner({x[0]}, {.differentiable = true});
      const Array loss = attention_under({.causal = true, .context = context})({inner.shadows()[0], x[1], x[2]});
      return sum(square(inner.gradients(loss)[0]));
    };
  };
  const Step expected = step(inputs.on(make_mesh({{"one", 1}}), P{}), slope(Context::exchange));
  EXPECT_LT(difference(step(inputs.on(mesh, P{none, "seq"}), slope(Context::ring)), expected), 1e-11);
}

// ---- communication and memory

// Returns the number of permutes, and their bytes.
std::pair<int64_t, int64_t> permuted(const Sizes& s, int64_t devices, const DotProductAttentionOptions& options) {
  CommLedger ledger;
  step(Inputs(s).on(make_mesh({{"seq", devices}}), P{none, "seq"}), attention_under(options));
  return {ledger.count("permute"), ledger.bytes("permute")};
}

TEST(RingAttention, MovesKeysAndValuesRoundAndTheirGradientsWithThem) {
  const Sizes s{.heads = 6, .kv_heads = 2};
  constexpr int64_t n = 4, item = 8;
  const int64_t pair = s.batch * s.seq / n * s.kv_heads * (s.dim + s.value_dim) * item;
  const int64_t query = s.batch * s.seq / n * s.heads * s.dim * item, result = query;
  // Keys and values are sent n - 1 times forward and n - 1 times backward. Their gradients are sent n times, the last
  // time back to the device of the block.
  EXPECT_EQ(permuted(s, n, {.context = Context::ring}), std::pair(3 * n - 2, (3 * n - 2) * pair));
  // Causal attention first redistributes the sequence so that each device has a chunk from both ends: operands, results
  // and their gradients.
  EXPECT_EQ(permuted(s, n, {.causal = true, .context = Context::ring}),
            std::pair(3 * n - 2 + 8, (3 * n - 2) * pair + 2 * (query + pair) + 2 * result));
  // With a window of two blocks, one step of the ring suffices.
  EXPECT_EQ(permuted(s, n, {.causal = true, .window = 7, .context = Context::ring}), std::pair(int64_t{4}, 4 * pair));
}

TEST(RingAttention, TakesMemoryAsTheSequenceOfADevice) {
  const auto peak = [](int64_t seq, int64_t devices, Context context) {
    const Mesh mesh = make_mesh({{"seq", devices}}, {.abstract = true});
    const Array x = device_put(zeros({1, seq, 4, 1024}), NamedSharding(mesh, P{none, "seq"}));
    Forecast forecast;
    run_step({x, x * 1.0, x * 1.0}, {.causal = true, .context = context});
    return static_cast<double>(forecast.peak_bytes());
  };
  const double once = peak(1 << 12, 8, Context::ring);
  EXPECT_NEAR(peak(1 << 13, 16, Context::ring) / once, 1, 0.05);
  EXPECT_NEAR(peak(1 << 13, 8, Context::ring) / once, 2, 0.1);
  EXPECT_GT(peak(1 << 13, 16, Context::gather) / once, 1.5);
}

TEST(ContextParallelism, OfSegmentsHasAForecast) {
  const Mesh mesh = make_mesh({{"seq", 4}}, {.abstract = true});
  for (const Context context : {Context::exchange, Context::gather, Context::ring}) {
    const Array x = device_put(zeros({1, 64, 4, 8}), NamedSharding(mesh, P{none, "seq"}));
    const DotProductAttentionOptions options{.causal = true,
                                             .window = 9,
                                             .segment_ids = device_put(zeros({1, 64}, int32), NamedSharding(mesh, P{})),
                                             .context = context};
    Forecast forecast;
    run_step({x, x * 1.0, x * 1.0}, options);
    EXPECT_GT(forecast.flops(), 0);
  }
}

TEST(ContextParallelism, IsChosenByWhatMoves) {
  const Mesh mesh = make_mesh({{"seq", 4}});
  const auto kinds = [&](const Sizes& s, const DotProductAttentionOptions& options) {
    CommLedger ledger;
    const std::vector<Array> x = Inputs(s).on(mesh, P{none, "seq"});
    dot_product_attention(x[0], x[1], x[2], options);
    std::set<std::string> found;
    for (const CommRecord& r : ledger.records()) found.insert(r.kind);
    return fmt::format("{}", fmt::join(found, " "));
  };
  EXPECT_EQ(kinds({.heads = 8, .kv_heads = 8}, {.causal = true}), "all_to_all");
  EXPECT_EQ(kinds({.heads = 6, .kv_heads = 6}, {.causal = true}), "permute");
  EXPECT_EQ(kinds({.heads = 6, .kv_heads = 6}, {.causal = true, .context = Context::gather}), "all_gather");
}

TEST(ContextParallelism, ARingIsOfOneSequence) {
  const Array x = ones({1, 4, 2, 2}), longer = ones({1, 8, 2, 2});
  const DotProductAttentionOptions ring{.context = Context::ring};
  DotProductAttentionOptions biased = ring, later = ring, with_sinks = ring, wrong_sinks;
  biased.bias = ones({4, 4});
  later.offset = 3;
  with_sinks.sinks = ones({2});
  wrong_sinks.sinks = ones({4});
  expect_error(ErrorKind::invalid_argument, {"[dot_product_attention] a ring for", "with a bias or mask", "gather"},
               [&] { dot_product_attention(x, x, x, biased); });
  expect_error(ErrorKind::invalid_argument, {"a ring for", "with sinks", "gather"},
               [&] { dot_product_attention(x, x, x, with_sinks); });
  expect_error(ErrorKind::shape_mismatch,
               "[dot_product_attention] sinks float32[4] for float32[1,4,2,2], expected 2 numbers, one of each head.",
               [&] { dot_product_attention(x, x, x, wrong_sinks); });
  expect_error(ErrorKind::invalid_argument, "from position 3", [&] { dot_product_attention(x, x, x, later); });
  expect_error(ErrorKind::invalid_argument, "expected query and key of one sequence",
               [&] { dot_product_attention(x, longer, longer, ring); });
}

}  // namespace
}  // namespace tessera::ring_attention_test
