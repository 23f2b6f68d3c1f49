// The fused cross-entropy on an accelerator: the kernel's arithmetic, run by the host, compared with LibTorch.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "nn/transformations/value_and_grad.h"
#include "sharding/operations/neural/linear_cross_entropy.h"
#include "sharding/operations/neural/loss_kernel.h"
#include "tests/device/pretended_device.h"
#include "tests/device/waits.h"
#include "tests/optim/support.h"

namespace tessera::losses_test {
namespace {

const std::string there = testing::pretended_device();
int calls = 0;

// Computes rows as the CUDA kernels do, one thread after another.
template <class T, class G = T>
void compute(const detail::LossRows& rows) {
  const int threads = detail::row_threads<T>(rows.vocab);
  for (int64_t row = 0; row < rows.rows; ++row) {
    detail::RowSums sums;
    for (int t = 0; t < threads; ++t)
      if (rows.gradients)
        detail::thread_gradients<T, G>(rows, row, t, threads);
      else
        sums = detail::merged(sums, detail::thread_sums<T>(rows, row, t, threads));
    if (!rows.gradients) detail::finish_row<T>(rows, row, sums);
  }
}

void kernel(const detail::LossRows& shown, int) {
  const auto real = [](auto* p) { return static_cast<decltype(p)>(testing::kernel_address(p)); };
  detail::LossRows rows = shown;
  rows.logits = real(rows.logits), rows.labels = real(rows.labels), rows.sums = real(rows.sums);
  rows.losses = real(rows.losses), rows.of_losses = real(rows.of_losses), rows.gradients = real(rows.gradients);
  ++calls;
  const bool into_half = rows.gradients && rows.gradient_type == detail::LogitType::bfloat16;
  rows.type == detail::LogitType::float32   ? into_half ? compute<float, c10::BFloat16>(rows) : compute<float>(rows)
    : rows.type == detail::LogitType::float16 ? compute<c10::Half>(rows)
                                            : compute<c10::BFloat16>(rows);
}

struct Registered : detail::ScopedValue<detail::LossKernel> {
  Registered() : ScopedValue(detail::loss_kernel_of(c10::kPrivateUse1), &kernel) {}
};

struct Case {
  int64_t vocab = 8;
  DType dtype = float32;
  CrossEntropyOptions options = {};
  int devices = 1;
  int64_t skipped = 0;  // columns before the logits: these rows have gaps, and other addresses than their gradients
};

constexpr int64_t rows = 12;

struct Results {
  std::vector<float> losses, gradients;
};

// Returns the losses of the logits, and the gradients of a weighted sum of them, and expects no wait.
Results results_of(const Case& c, const Array& x, const Array& labels, const Array& weights) {
  const auto losses_of = [&](const Array& all) {
    return cross_entropy_per_position(slice_in_dim(all, c.skipped, c.skipped + c.vocab, 1), labels, c.options);
  };
  const auto total = [&](const Array& all) { return sum(astype(losses_of(all), weights.dtype()) * weights); };
  auto waits = std::make_unique<testing::Waits>();
  const Array losses = losses_of(x), gradients = nn::value_and_grad(total)(x).second;
  EXPECT_EQ(losses.dtype(), x.dtype());
  EXPECT_EQ(waits->text(), "");
  waits.reset();
  return {host(losses), host(gradients)};
}

// Returns the sum of the finite errors: absolute for small numbers, relative for large ones. Each may be `tolerance`.
double error_of(const std::vector<float>& got, const std::vector<float>& expected, double tolerance = INFINITY) {
  double sum = 0;
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    const double error = std::abs(double{got[i]} - expected[i]) / std::max(1.0, std::abs(double{expected[i]}));
    if (tolerance < INFINITY) {
      EXPECT_LE(error, tolerance) << "at " << i;
    }
    if (std::isfinite(error)) sum += error;
  }
  return sum;
}

void expect_fused(const Case& c) {
  SCOPED_TRACE(fmt::format("vocab {}, {}, smoothing {}, z_loss {}, ignored {}, {} devices, {} columns skipped", c.vocab,
                           name_of(c.dtype), c.options.label_smoothing, c.options.z_loss,
                           c.options.ignore_label.has_value(), c.devices, c.skipped));
  const int64_t width = c.vocab + c.skipped;
  std::vector<float> x = host(3 * normal(Key(1), {rows, width}));
  std::vector<int32_t> labels = randint(Key(2), {rows}, 0, c.vocab).to_host<int32_t>();
  const auto at = [&](int64_t row, int64_t column) -> float& { return x[row * width + c.skipped + column]; };
  at(2, (labels[2] + 1) % c.vocab) = -INFINITY, at(3, labels[3]) = -INFINITY, at(5, 0) = INFINITY;
  at(6, c.vocab - 1) = at(8, 0) = NAN;
  for (int64_t column = 0; column < c.vocab; ++column) {
    at(4, column) = -INFINITY, at(7, column) *= 1e3f;
    if (!c.options.z_loss) at(10, column) = 1e35f;  // the sum over the vocabulary overflows
  }
  const Array given = astype(array(x, {rows, width}), c.dtype);
  x = host(given);
  if (c.options.ignore_label)
    for (const int64_t row : {8, 9}) {
      labels[row] = static_cast<int32_t>(*c.options.ignore_label);
      for (int64_t column = 0; column < c.vocab; ++column) at(row, column) = 0;  // LibTorch keeps NaN of ignored rows
    }
  const Array names = array(labels, {rows}), weights = uniform(Key(3), {rows}, -2, 2);
  const Results expected = results_of(c, astype(array(x, {rows, width}), float64), names, astype(weights, float64));
  const Mesh mesh = make_mesh({{"data", c.devices}}, {.device = there});
  const auto placed = [&](const Array& a) { return device_put(a, NamedSharding(mesh, P{"data"})); };
  const double tolerance = c.dtype == float32 ? 2e-6 : c.dtype == float16 ? 1e-3 : 8e-3;
  // LibTorch's kernels on the device, which round more often in half precision.
  const Results before = results_of(c, placed(given), placed(names), placed(weights));
  const Registered scope;
  calls = 0;
  const Results got = results_of(c, placed(given), placed(names), placed(weights));
  EXPECT_EQ(calls, 3 * c.devices);
  const double losses = error_of(got.losses, expected.losses, tolerance),
               gradients = error_of(got.gradients, expected.gradients, tolerance);
  EXPECT_LE(losses, 1.1 * error_of(before.losses, expected.losses) + 1e-5);
  EXPECT_LE(gradients, 1.1 * error_of(before.gradients, expected.gradients) + 1e-5);
}

TEST(DeviceLosses, AreThoseOfTheHost) {
  for (const DType dtype : {float32, float16, bfloat16})
    for (const int64_t vocab : {1, 7, 64, 1031})
      for (const CrossEntropyOptions& options : {CrossEntropyOptions{},
                                                 {.ignore_label = -100},
                                                 {.label_smoothing = 0.1},
                                                 {.z_loss = 1e-4},
                                                 {.ignore_label = 3, .label_smoothing = 0.2, .z_loss = 2e-4}}) {
        expect_fused({vocab, dtype, options});
        expect_fused({vocab, dtype, options, /*devices=*/2, /*skipped=*/3});
      }
}

TEST(DeviceLosses, OfAHeadAreThoseOfTheHost) {
  const Array x = normal(Key(1), {2, 6, 8}), kernel = normal(Key(2), {8, 40}), weights = uniform(Key(3), {2, 6}, 0, 2);
  const Array labels = randint(Key(4), {2, 6}, 0, 37);
  const std::vector<LinearCrossEntropyOptions> cases{{.chunk = 5},
                                                     {.ignore_label = 3},
                                                     {.label_smoothing = 0.1, .z_loss = 1e-3, .chunk = 1},
                                                     {.vocab = 37, .chunk = 4}};
  for (const DType dtype : {float32, bfloat16})
    for (const LinearCrossEntropyOptions& options : cases)
      for (const bool weighted : {false, true}) {
        const auto results = [&](const Mesh& mesh, DType type) {
          const auto placed = [&](const Array& a) { return device_put(a, NamedSharding(mesh, P{})); };
          LinearCrossEntropyOptions o = options;
          if (weighted) o.weights = placed(weights);
          const Array ids = placed(labels);
          const auto loss = [&](const std::vector<Array>& p) { return linear_cross_entropy(p[0], p[1], ids, o); };
          const std::vector<Array> operands{placed(astype(astype(x, dtype), type)),
                                            placed(astype(astype(kernel, dtype), type))};
          const auto [value, gradients] = nn::value_and_grad(loss)(operands);
          std::vector<float> all = host(value);
          for (const Array& g : gradients)
            for (const float number : host(g)) all.push_back(number);
          return all;
        };
        const std::vector<float> expected = results(make_mesh({{"one", 1}}, {.device = "cpu"}), float32);
        const Registered scope;
        calls = 0;
        error_of(results(make_mesh({{"one", 1}}, {.device = there}), dtype), expected, dtype == float32 ? 1e-5 : 1e-2);
        EXPECT_EQ(calls, 2 * ((11 + options.chunk.value_or(12)) / options.chunk.value_or(12)));
      }
}

TEST(DeviceLosses, SecondDerivativesAndEmptyBatchesNeedNoKernel) {
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  const auto placed = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  const Array labels = array<int32_t>({1, 4}), x = normal(Key(1), {2, 5});
  const auto curvature = [](const Array& logits, const Array& ids) {
    const auto inner = [&](const Array& y) { return cross_entropy(y, ids); };
    return sum(square(nn::value_and_grad(inner)(logits).second));
  };
  const std::vector<float> expected = host(nn::value_and_grad(curvature)(x, labels).second);
  const Registered scope;
  calls = 0;
  expect_near(nn::value_and_grad(curvature)(placed(x), placed(labels)).second, expected, 1e-6);
  const Array none = placed(zeros({0, 5}));
  EXPECT_EQ(host(cross_entropy_sum(none, placed(zeros({0}, int32))).sum), std::vector<float>{0});
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace tessera::losses_test
