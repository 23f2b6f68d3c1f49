// The initializers have the distributions of jax.nn.initializers.
#include "nn/layers/init.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sharding/operations.h"
#include "tests/nn/support.h"

namespace tessera::nn::init_test {
namespace {

struct Moments {
  double mean, stddev, largest;
};

Moments moments_of(const Array& x) { return {mean(x).item<float>(), std(x).item<float>(), max(abs(x)).item<float>()}; }

// `largest`: the largest absolute value, in standard deviations.
void expect_distribution(const char* name, const Initializer& initializer, const Shape& shape, double stddev,
                         double largest) {
  const Array x = initializer(Key(0), shape);
  EXPECT_TRUE(x.is_lazy()) << name;
  const Moments m = moments_of(x);
  EXPECT_NEAR(m.mean, 0, 0.02 * stddev) << name;
  EXPECT_NEAR(m.stddev, stddev, 0.01 * stddev) << name;
  EXPECT_NEAR(m.largest, largest * stddev, 0.01 * stddev) << name;
}

constexpr double cut_at = 2 / 0.87962566103423978, uniform_to = 1.7320508;

TEST(Init, VarianceFollowsTheFans) {
  const Shape kernel{200, 400}, image{3, 5, 20, 40}, experts{4, 200, 100};
  expect_distribution("lecun_normal", init::lecun_normal(), kernel, std::sqrt(1 / 200.0), cut_at);
  expect_distribution("lecun_uniform", init::lecun_uniform(), kernel, std::sqrt(1 / 200.0), uniform_to);
  expect_distribution("glorot_normal", init::glorot_normal(), kernel, std::sqrt(2 / 600.0), cut_at);
  expect_distribution("glorot_uniform", init::glorot_uniform(), kernel, std::sqrt(2 / 600.0), uniform_to);
  expect_distribution("he_normal", init::he_normal(), kernel, std::sqrt(2 / 200.0), cut_at);
  expect_distribution("he_uniform", init::he_uniform(), kernel, std::sqrt(2 / 200.0), uniform_to);
  expect_distribution("fan_in_uniform", init::fan_in_uniform(), kernel, std::sqrt(1 / 600.0), uniform_to);
  expect_distribution("of images", init::he_uniform(), image, std::sqrt(2 / 300.0), uniform_to);
  expect_distribution("of stacked kernels", init::glorot_uniform(1), experts, std::sqrt(2 / 300.0), uniform_to);
}

TEST(Init, PlainOnes) {
  expect_distribution("uniform", init::uniform(0.3), {200, 400}, 0.3 / uniform_to, uniform_to);
  expect_distribution("truncated_normal", init::truncated_normal(0.5), {200, 400}, 0.5 / cut_at * 2, cut_at);
  const Moments m = moments_of(init::normal(0.5)(Key(0), {200, 400}));
  EXPECT_NEAR(m.stddev, 0.5, 0.005);
  EXPECT_EQ(init::constant(3)(Key(0), {2}).to_host<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(init::ones()(Key(0), {2}).to_host<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(init::zeros()(Key(0), {2}).to_host<float>(), (std::vector<float>{0, 0}));
}

// jax.nn.initializers.orthogonal(2.0)(jax.random.key(0), (2, 3)) and (3, 2).
TEST(Init, OrthogonalIsJaxs) {
  testing::expect_near(
      init::orthogonal(2)(Key(0), {2, 3}),
      array<float>(std::vector<float>{1.9216733F, -0.51350003F, 0.20854208F, 0.37209678F, 0.63762242F, -1.8587581F},
                   {2, 3}),
      1e-6, "wide");
  testing::expect_near(
      init::orthogonal(2)(Key(0), {3, 2}),
      array<float>(std::vector<float>{1.9216733F, 0.37209678F, -0.51350003F, 0.63762242F, 0.20854208F, -1.8587581F},
                   {3, 2}),
      1e-6, "tall");
}

TEST(Init, OrthogonalOfNothingIsNothing) {
  for (const Shape& shape : {Shape{4, 0}, Shape{0, 4}}) EXPECT_EQ(init::orthogonal()(Key(0), shape).shape(), shape);
}

TEST(Init, OrthogonalColumns) {
  const Array q = init::orthogonal()(Key(1), {3, 4, 5});
  const Array flat = reshape(q, {12, 5});
  testing::expect_near(matmul(transpose(flat), flat), eye(5), 1e-6, "columns");
}

}  // namespace
}  // namespace tessera::nn::init_test
