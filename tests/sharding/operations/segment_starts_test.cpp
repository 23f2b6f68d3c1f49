// Attention with segment starts equals attention with segment ids, on all placements.
#include "sharding/operations/neural/attention.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::segment_starts_test {
namespace {

using namespace tessera::testing;
using Context = ContextParallelism;

constexpr int64_t batch = 4, seq = 12;

// Rows of one segment, of uneven ones, of one token each at the start, and with an empty segment in between.
const at::Tensor starts = at::tensor({0, 12, 12, 12, 0, 5, 9, 12, 0, 1, 2, 3, 4, 4, 10, 12}).view({batch, 4});
const at::Tensor ids = at::tensor({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                   0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,  //
                                   0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3,  //
                                   7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 5, 5})
                           .view({batch, seq});

std::vector<Array> inputs(const Mesh& mesh, const PartitionSpec& spec, int64_t kv_heads = 2) {
  return {placed(random_tensor({batch, seq, 4, 8}, 1), mesh, spec),
          placed(random_tensor({batch, seq, kv_heads, 8}, 2), mesh, spec),
          placed(random_tensor({batch, seq, kv_heads, 8}, 3), mesh, spec)};
}

Model attention_under(const DotProductAttentionOptions& options) {
  return [options](const std::vector<Array>& x) {
    const Array y = dot_product_attention(x[0], x[1], x[2], options);
    return sum(y * astype(from_tensor(cotangent(at::empty(y.shape()))), y.dtype()));
  };
}

std::vector<DotProductAttentionOptions> cases() {
  return {{},
          {.causal = true},
          {.causal = true, .window = 3},
          {.window = 3},
          {.causal = true, .softcap = 0.7},
          {.causal = true, .scale = -0.5}};
}

Step expected(DotProductAttentionOptions options) {
  options.segment_ids = from_tensor(ids.to(at::kInt));
  return step(inputs(make_mesh({{"one", 1}}), P{}), attention_under(options));
}

TEST(SegmentStarts, EqualSegmentIdsOnAllPlacements) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  for (DotProductAttentionOptions options : cases()) {
    const Step want = expected(options);
    for (const at::ScalarType type : {at::kInt, at::kLong}) {
      options.segment_starts = from_tensor(starts.to(type));
      EXPECT_TRUE(are_equal(step(inputs(make_mesh({{"one", 1}}), P{}), attention_under(options)), want));
    }
    for (const PartitionSpec& spec : {P{"a"}, P{"a", none, "b"}, P{none, none, "b"}, P{{"a", "b"}}})
      EXPECT_LT(difference(step(inputs(mesh, spec), attention_under(options)), want), 1e-11);
    for (const Context context : {Context::automatic, Context::exchange, Context::gather, Context::ring}) {
      options.context = context;
      EXPECT_LT(difference(step(inputs(mesh, P{"a", "b"}), attention_under(options)), want), 1e-11);
    }
  }
}

// Four rows over three devices: two rows of padding.
TEST(SegmentStarts, APaddedBatch) {
  const Mesh mesh = make_mesh({{"a", 3}});
  DotProductAttentionOptions options{.causal = true};
  const Step want = expected(options);
  options.segment_starts = from_tensor(starts);
  const Step got = step(inputs(mesh, P{SpecEntry("a", Uneven::pad)}), attention_under(options));
  EXPECT_LT(difference(got, want), 1e-11);
}

TEST(SegmentStarts, OnAnAbstractMesh) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}}, {.abstract = true});
  for (const Context context : {Context::exchange, Context::gather, Context::ring}) {
    const Array x = device_put(zeros({batch, seq, 4, 8}), NamedSharding(mesh, P{"a", "b"}));
    const Array begin = device_put(zeros({batch, 4}, int32), NamedSharding(mesh, P{"a"}));
    EXPECT_EQ(dot_product_attention(x, x, x, {.segment_starts = begin, .context = context}).shape(), x.shape());
  }
}

TEST(SegmentStarts, MayBeAsManyAsTokens) {
  const Array x = device_put(ones({1, 4096, 1, 8}), NamedSharding(make_mesh({{"a", 4}}), P{none, "a"}));
  const Array every = array(std::vector<int32_t>(4096, 4096), {1, 4096});
  EXPECT_TRUE(at::equal(to_tensor(tessera::detail::segment_ids_of(every, 4096)), at::zeros({1, 4096}, at::kInt)));
  (void)dot_product_attention(x, x, x, {.causal = true, .segment_starts = every, .context = Context::ring});
}

TEST(Attention, WithoutHeadsAndWithABiasOfFloat64) {
  const Array none = ones({1, 4, 0, 8}), x = ones({1, 4, 2, 8});
  EXPECT_EQ(to_tensor(dot_product_attention(none, none, none)).numel(), 0);
  for (const DType dtype : {float32, bfloat16}) {
    const Array y = astype(x, dtype);
    EXPECT_TRUE(
        at::allclose(to_tensor(dot_product_attention(y, y, y, {.bias = zeros({4, 4}, float64)})), to_tensor(y)));
  }
}

TEST(SegmentStarts, WithoutRowsTokensOrStarts) {
  for (const Shape& shape : {Shape{0, 4, 2, 8}, Shape{2, 0, 2, 8}, Shape{2, 4, 2, 8}}) {
    const Array x = ones(shape);
    const Array result = dot_product_attention(x, x, x, {.segment_starts = zeros({shape[0], 0}, int32)});
    EXPECT_TRUE(at::equal(to_tensor(result), to_tensor(x)));
  }
}

TEST(SegmentStarts, WrongOnesAreErrors) {
  const Array x = ones({2, 4, 2, 8});
  const auto refuse = [&](ErrorKind kind, const std::string& words, const Array& given, const Array& also = {}) {
    expect_error(kind, words, [&] {
      (void)to_tensor(dot_product_attention(x, x, x, {.segment_ids = also, .segment_starts = given}));
    });
  };
  const auto of = [](std::vector<int32_t> values) { return array<int32_t>(values, {2, 2}); };
  const ErrorKind value = ErrorKind::invalid_argument;
  refuse(value, "segment_starts: 5 after 0, expected increasing starts from 0 to seq = 4.", of({0, 4, 0, 5}));
  refuse(value, "segment_starts: -1 after no other in its row", of({-1, 4, 0, 4}));
  refuse(value, "segment_starts: 1 after 2, expected", of({2, 1, 0, 4}));
  refuse(value, "segment_ids and segment_starts given, expected one of them", of({0, 4, 0, 4}), zeros({2, 4}, int32));
  refuse(ErrorKind::shape_mismatch, "expected (batch, n)", zeros({3, 2}, int32));
  refuse(ErrorKind::shape_mismatch, "expected (batch, n)", zeros({2}, int32));
  refuse(ErrorKind::dtype_mismatch, "segment_starts", ones({2, 2}));
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array split = device_put(x, NamedSharding(mesh, P{none, "a"}));
  for (const Context context : {Context::gather, Context::ring})
    expect_error(value, "segment_starts: 5 after 0", [&] {
      (void)dot_product_attention(split, split, split, {.segment_starts = of({0, 4, 0, 5}), .context = context});
    });
}

}  // namespace
}  // namespace tessera::segment_starts_test
