// The loss of a head in chunks, in addition to the law: chunk sizes, half precision, communication, memory, errors.
#include "sharding/accounting/forecast.h"
#include "sharding/autodiff/remat.h"
#include "sharding/shard_map.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"
#include "tests/sharding/law.h"

namespace tessera::linear_cross_entropy_test {
namespace {

using namespace tessera::testing;

constexpr int64_t rows = 12, embed = 4, vocab = 8;

struct Head {
  Array x, kernel, labels;
};

Head head_of(DType dtype = float64) {
  return {astype(from_tensor(random_tensor({rows, embed}, 1)), dtype),
          astype(from_tensor(random_tensor({embed, vocab}, 2)), dtype), from_tensor(random_integers({rows}, vocab, 3))};
}

Head placed_head(Mesh mesh, const PartitionSpec& x, const PartitionSpec& kernel, const PartitionSpec& labels) {
  const Head head = head_of();
  return {device_put(head.x, NamedSharding(mesh, x)), device_put(head.kernel, NamedSharding(mesh, kernel)),
          device_put(head.labels, NamedSharding(mesh, labels))};
}

struct Result {
  at::Tensor loss, x, kernel;
};

template <class Loss>
Result result_of(const Head& head, const Loss& loss_of) {
  Tape tape({head.x, head.kernel});
  const Array loss = loss_of(tape.shadows()[0], tape.shadows()[1], head.labels);
  const std::vector<Array> gradients = tape.gradients(loss);
  return {whole(tessera::detail::finalize_result(loss)), whole(gradients[0]), whole(gradients[1])};
}

Array plain(const Array& x, const Array& kernel, const Array& labels) {
  return cross_entropy(matmul(x, kernel), labels, {.ignore_label = 3});
}
auto chunked(int64_t chunk) {
  return [chunk](const Array& x, const Array& kernel, const Array& labels) {
    return linear_cross_entropy(x, kernel, labels, {.ignore_label = 3, .chunk = chunk});
  };
}

void expect_near(const Result& got, const Result& expected, double tolerance) {
  EXPECT_LE(difference(got.loss, expected.loss), tolerance);
  EXPECT_LE(difference(got.x, expected.x), tolerance);
  EXPECT_LE(difference(got.kernel, expected.kernel), tolerance);
}

TEST(LinearCrossEntropy, AnyChunkIsTheWhole) {
  const Result expected = result_of(head_of(), plain);
  for (const int64_t chunk : {1, 5, 11, 12, 1000}) {
    SCOPED_TRACE(chunk);
    expect_near(result_of(head_of(), chunked(chunk)), expected, 1e-14);
  }
}

// In bfloat16 each loss would have an error of 1/256, and sums of gradients a larger one.
TEST(LinearCrossEntropy, HalfPrecisionHasItsLossInFloat32) {
  const Head half = head_of(bfloat16);
  const Head exact{astype(half.x, float64), astype(half.kernel, float64), half.labels};
  const Result expected = result_of(exact, plain), got = result_of(half, chunked(5));
  EXPECT_EQ(got.loss.scalar_type(), at::kFloat);
  EXPECT_EQ(got.x.scalar_type(), at::kBFloat16);
  EXPECT_EQ(got.kernel.scalar_type(), at::kBFloat16);
  expect_near(got, expected, 1.0 / 128);
}

TEST(LinearCrossEntropy, ElementTypesArePromoted) {
  Head mixed = head_of();
  mixed.x = astype(mixed.x, float32);
  const Result expected = result_of(mixed, plain), got = result_of(mixed, chunked(5));
  EXPECT_EQ(got.x.scalar_type(), at::kFloat);
  EXPECT_EQ(got.kernel.scalar_type(), at::kDouble);
  expect_near(got, expected, 1e-6);
}

TEST(LinearCrossEntropy, UnderRemat) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  for (const PartitionSpec& kernel : {P{none, "model"}, P{"data"}, P{"data", "model"}}) {
    SCOPED_TRACE(kernel.to_string());
    const auto again = [](const Array& x, const Array& w, const Array& labels) {
      return remat(
          [&](const std::vector<Array>& a) -> std::vector<Array> {
            return {linear_cross_entropy(a[0], a[1], labels, {.ignore_label = 3, .chunk = 2})};
          },
          {x, w})[0];
    };
    expect_near(result_of(placed_head(mesh, P{"data"}, kernel, P{"data"}), again), result_of(head_of(), plain), 1e-13);
  }
}

TEST(LinearCrossEntropy, AFrozenKernelOrInputHasNoGradient) {
  const Head head = head_of();
  const Result expected = result_of(head, plain);
  Tape of_x({head.x});
  const Array loss = chunked(5)(of_x.shadows()[0], head.kernel, head.labels);
  EXPECT_LE(difference(to_tensor(of_x.gradients(loss)[0]), expected.x), 1e-14);
  Tape of_kernel({head.kernel});
  const Array same = chunked(5)(head.x, of_kernel.shadows()[0], head.labels);
  EXPECT_LE(difference(to_tensor(of_kernel.gradients(same)[0]), expected.kernel), 1e-14);
  EXPECT_LE(difference(to_tensor(chunked(5)(head.x, head.kernel, head.labels)), expected.loss), 1e-14);
}

// The devices' losses have different gradients, so one device's gradient must not be used for all.
TEST(LinearCrossEntropy, InsideShardMapEachDeviceHasItsOwnGradient) {
  const auto loss_of = [](const auto& head_loss) {
    return [=](const Array& x, const Array& kernel, const Array& labels) {
      const auto weighed = [&](const Array& rows_of_one, const Array& w, const Array& labels_of_one) {
        const Array i = astype(axis_index("data"), float64);
        return psum((i + 1.0) * head_loss(rows_of_one, w, labels_of_one), {"data"});
      };
      return shard_map(weighed, make_mesh({{"data", 4}}), {P{"data"}, P{}, P{"data"}}, P{})(x, kernel, labels);
    };
  };
  expect_near(result_of(head_of(), loss_of(chunked(2))), result_of(head_of(), loss_of(plain)), 1e-13);
}

// ---- padding

constexpr int64_t classes = 5;  // the kernel has 8: three of eight devices have only padding

Result padded_result(const Mesh& mesh, const PartitionSpec& x, const PartitionSpec& kernel, double padding) {
  Head head = head_of();
  head.kernel = from_tensor(at::cat(
      {to_tensor(head.kernel).narrow(1, 0, classes), at::full({embed, vocab - classes}, padding, at::kDouble)}, 1));
  const Head placed{device_put(head.x, NamedSharding(mesh, x)), device_put(head.kernel, NamedSharding(mesh, kernel)),
                    device_put(from_tensor(random_integers({rows}, classes, 3)), NamedSharding(mesh, x))};
  return result_of(placed, [](const Array& x, const Array& w, const Array& labels) {
    return linear_cross_entropy(x, w, labels, {.ignore_label = 3, .vocab = classes, .chunk = 5});
  });
}

TEST(LinearCrossEntropy, PaddingIsInNoResultAndHasNoGradient) {
  Head unpadded = head_of();
  unpadded.kernel = slice_in_dim(unpadded.kernel, 0, classes, 1);
  unpadded.labels = from_tensor(random_integers({rows}, classes, 3));
  const Result expected = result_of(unpadded, plain);
  const std::tuple<std::vector<MeshAxis>, PartitionSpec, PartitionSpec> places[] = {
      {{{"data", 1}}, P{}, P{}},
      {{{"model", 8}}, P{}, P{none, "model"}},
      {{{"data", 2}, {"model", 4}}, P{"data"}, P{none, "model"}},
      {{{"data", 4}}, P{"data"}, P{"data"}}};
  for (const auto& [axes, x, kernel] : places)
    for (const double padding : {7.0, static_cast<double>(NAN)})
      for (const bool is_private : {false, true}) {
        const Mesh mesh = make_mesh(axes, {.private_replicas = is_private});
        SCOPED_TRACE(mesh.to_string());
        const Result got = padded_result(mesh, x, kernel, padding);
        expect_near({got.loss, got.x, got.kernel.narrow(1, 0, classes)}, expected, 1e-13);
        EXPECT_TRUE(at::equal(got.kernel.narrow(1, classes, vocab - classes),
                              at::zeros({embed, vocab - classes}, at::kDouble)));
      }
}

// ---- communication

std::string moved(const Head& head, int64_t chunk) {
  CommLedger ledger;
  result_of(head, chunked(chunk));
  std::string text;
  for (const CommRecord& r : ledger.records())
    text += fmt::format("{} {} {} {}\n", r.operation, r.kind, r.mesh_axes, r.bytes);
  return text;
}

TEST(LinearCrossEntropy, AKernelShardedOverVocabStaysWhereItIs) {
  const Mesh mesh = make_mesh({{"model", 4}});
  EXPECT_EQ(moved(placed_head(mesh, P{}, P{none, "model"}, P{}), 8),
            "linear_cross_entropy all_reduce_max model 64\n"
            "linear_cross_entropy all_reduce model 128\n"
            "linear_cross_entropy all_reduce_max model 32\n"
            "linear_cross_entropy all_reduce model 64\n"
            "gradients all_reduce model 384\n");
}

// An FSDP weight is gathered once, also for the backward pass, and its gradient is reduce-scattered.
TEST(LinearCrossEntropy, AKernelShardedOverEmbedIsGatheredOnce) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const std::string text = moved(placed_head(mesh, P{"data"}, P{"data"}, P{"data"}), 2);
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("all_gather data 256"), 1) << text;
  EXPECT_EQ(count("all_gather"), 1) << text;
  EXPECT_EQ(count("reduce_scatter data 64"), 1) << text;
}

// ---- memory

int64_t peak_of(const std::function<Array(const Array&, const Array&, const Array&)>& loss_of) {
  const Mesh mesh = make_mesh({{"data", 1}}, {.abstract = true});
  const auto zeros_on = [&](const Shape& shape, DType dtype) {
    return device_put(zeros(shape, dtype), NamedSharding(mesh, P{}));
  };
  const Forecast forecast;
  const Array x = zeros_on({4096, 256}, float32), kernel = zeros_on({256, 50257}, float32);
  Tape tape({x, kernel});
  tape.gradients(loss_of(tape.shadows()[0], tape.shadows()[1], zeros_on({4096}, int32)));
  return forecast.peak_bytes();
}

TEST(LinearCrossEntropy, TakesLessThanAQuarterOfTheMemory) {
  EXPECT_LT(4 * peak_of([](const Array& x, const Array& w, const Array& l) { return linear_cross_entropy(x, w, l); }),
            peak_of([](const Array& x, const Array& w, const Array& l) { return cross_entropy(matmul(x, w), l); }));
}

// ---- errors

TEST(LinearCrossEntropy, Errors) {
  const Array x = ones({3, 4}), kernel = ones({4, 8}), labels = array<int32_t>({0, 1, 7});
  const ErrorKind shape = ErrorKind::shape_mismatch, argument = ErrorKind::invalid_argument;
  expect_error(shape,
               "[linear_cross_entropy] given float32[3,4] and the kernel float32[4,8], expected (..., embed) and "
               "(vocab, embed).",
               CALL(linear_cross_entropy(x, kernel, labels, {.transposed = true})));
  expect_error(shape,
               "[linear_cross_entropy] given float32[3,4] and labels int32[1], expected labels of the shape (3).",
               CALL(linear_cross_entropy(x, kernel, array<int32_t>({0}))));
  expect_error(argument, "[linear_cross_entropy] indices from 0 to 8 given, expected 0 to 7.",
               CALL(linear_cross_entropy(x, kernel, array<int32_t>({0, 1, 8}))));
  expect_error(argument, "[linear_cross_entropy] chunk 0, expected 1 or more.",
               CALL(linear_cross_entropy(x, kernel, labels, {.chunk = 0})));
  expect_error(argument, "[linear_cross_entropy] logit_softcap 0, expected a positive number.",
               CALL(linear_cross_entropy(x, kernel, labels, {.logit_softcap = 0.0})));
  expect_error(shape, "[linear_cross_entropy] labels int32[0] have no elements, so their mean is undefined.",
               CALL(linear_cross_entropy(ones({0, 4}), kernel, zeros({0}, int32))));
  expect_error(argument, "[linear_cross_entropy] indices from 0 to 7 given, expected 0 to 5.",
               CALL(linear_cross_entropy(x, kernel, labels, {.vocab = 6})));
  for (const int64_t vocab : {-1, 9})
    expect_error(argument, "of the kernel float32[4,8], expected 1 to 8, or 0 for all.",
                 CALL(linear_cross_entropy(x, kernel, labels, {.vocab = vocab})));
}

// Without positions the sum is 0. Without features all logits are 0. Without classes the loss throws.
TEST(LinearCrossEntropy, OfNothingIsAsThePlainLoss) {
  const Array kernel = ones({4, 8}), none = zeros({0}, int32);
  EXPECT_EQ(linear_cross_entropy_sum(ones({0, 4}), kernel, none).mean().item<float>(), 0);
  EXPECT_EQ(cross_entropy_sum(ones({0, 8}), none).mean().item<float>(), 0);
  EXPECT_EQ(cross_entropy_per_position(ones({0, 8}), none).shape(), Shape{0});
  const Array labels = array<int32_t>({0, 1, 7});
  Head empty{ones({3, 0}), ones({0, 8}), labels};
  const Result got = result_of(empty, [](const Array& x, const Array& w, const Array& l) {
    return linear_cross_entropy(x, w, l, {.chunk = 2});
  });
  EXPECT_NEAR(got.loss.item<float>(), std::log(8), 1e-6);
  EXPECT_EQ(got.x.sizes(), (at::IntArrayRef{3, 0}));
  EXPECT_EQ(got.kernel.sizes(), (at::IntArrayRef{0, 8}));
  EXPECT_NEAR(cross_entropy(matmul(empty.x, empty.kernel), labels).item<float>(), std::log(8), 1e-6);
  const auto refused = [](const char* verb, const char* of) {
    return fmt::format("[{}] a vocabulary of 0 for {} and labels int32[3], expected one class or more.", verb, of);
  };
  expect_error(ErrorKind::shape_mismatch, refused("linear_cross_entropy", "float32[3,4]"),
               CALL(linear_cross_entropy(ones({3, 4}), ones({4, 0}), labels)));
  expect_error(ErrorKind::shape_mismatch, refused("cross_entropy", "float32[3,0]"),
               CALL(cross_entropy(ones({3, 0}), labels)));
}

}  // namespace
}  // namespace tessera::linear_cross_entropy_test
