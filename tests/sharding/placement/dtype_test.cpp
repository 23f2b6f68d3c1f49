// Element types: sizes, names, and promotion against JAX's lattice.
#include "sharding/placement/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tessera::dtype_test {
namespace {

constexpr std::array kAll = {boolean, uint8, int8, int16, int32, int64, bfloat16, float16, float32, float64};

TEST(DTypeTest, SizesAreThoseOfTheCppTypes) {
  EXPECT_EQ(item_size(boolean), 1);
  EXPECT_EQ(item_size(dtype_for<uint8_t>()), 1);
  EXPECT_EQ(item_size(dtype_for<int8_t>()), 1);
  EXPECT_EQ(item_size(dtype_for<int16_t>()), 2);
  EXPECT_EQ(item_size(dtype_for<int32_t>()), 4);
  EXPECT_EQ(item_size(dtype_for<int64_t>()), 8);
  EXPECT_EQ(item_size(float16), 2);
  EXPECT_EQ(item_size(bfloat16), 2);
  EXPECT_EQ(item_size(dtype_for<float>()), 4);
  EXPECT_EQ(item_size(dtype_for<double>()), 8);
}

TEST(DTypeTest, NamesAreJaxNamesAndReadBack) {
  EXPECT_EQ(name_of(boolean), "bool");
  EXPECT_EQ(name_of(bfloat16), "bfloat16");
  for (DType dtype : kAll) EXPECT_EQ(dtype_of(name_of(dtype)), dtype);
  EXPECT_EQ(dtype_of("float8"), std::nullopt);
  EXPECT_EQ(dtype_of(""), std::nullopt);
}

TEST(DTypeTest, FloatingTypes) {
  for (DType dtype : kAll) EXPECT_EQ(is_floating(dtype), name_of(dtype).find("float") != std::string_view::npos);
}

// jnp.promote_types of jax 0.10.2 with x64 enabled, in the order of kAll; each row is one left operand.
// b = bool, u1 i1 i2 i4 i8 (unsigned, signed), h = bfloat16, f2 f4 f8. gen_keys.py writes the same table ("promotion").
constexpr std::array<const char*, 10> kPromotion = {
    "b  u1 i1 i2 i4 i8 h  f2 f4 f8",  // bool
    "u1 u1 i2 i2 i4 i8 h  f2 f4 f8",  // uint8
    "i1 i2 i1 i2 i4 i8 h  f2 f4 f8",  // int8
    "i2 i2 i2 i2 i4 i8 h  f2 f4 f8",  // int16
    "i4 i4 i4 i4 i4 i8 h  f2 f4 f8",  // int32
    "i8 i8 i8 i8 i8 i8 h  f2 f4 f8",  // int64
    "h  h  h  h  h  h  h  f4 f4 f8",  // bfloat16
    "f2 f2 f2 f2 f2 f2 f4 f2 f4 f8",  // float16
    "f4 f4 f4 f4 f4 f4 f4 f4 f4 f8",  // float32
    "f8 f8 f8 f8 f8 f8 f8 f8 f8 f8",  // float64
};

DType short_name(std::string_view name) {
  constexpr std::array<std::string_view, 10> names = {"b ", "u1", "i1", "i2", "i4", "i8", "h ", "f2", "f4", "f8"};
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return kAll[i];
  throw std::invalid_argument(std::string(name));
}

TEST(DTypeTest, PromotionIsJaxLattice) {
  for (size_t a = 0; a < kAll.size(); ++a)
    for (size_t b = 0; b < kAll.size(); ++b)
      EXPECT_EQ(promote(kAll[a], kAll[b]), short_name(std::string_view(kPromotion[a]).substr(3 * b, 2)))
          << name_of(kAll[a]) << " + " << name_of(kAll[b]);
}

}  // namespace
}  // namespace tessera::dtype_test
