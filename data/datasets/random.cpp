// Philox4x64-10 and the distributions on top of it.
#include "data/datasets/random.h"

#include <cmath>
#include <numbers>

#include "sharding/base/fail.h"

namespace tessera::data {

namespace {

__extension__ using Wide = unsigned __int128;

using Counter = std::array<uint64_t, 4>;

Counter philox(Counter x, std::array<uint64_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const Wide a = Wide{0xd2e7470ee14c6c93} * x[0], b = Wide{0xca5a826395121157} * x[2];
    x = {static_cast<uint64_t>(b >> 64) ^ x[1] ^ key[0], static_cast<uint64_t>(b),
         static_cast<uint64_t>(a >> 64) ^ x[3] ^ key[1], static_cast<uint64_t>(a)};
    key[0] += 0x9e3779b97f4a7c15;
    key[1] += 0xbb67ae8584caa73b;
  }
  return x;
}

}  // namespace

uint64_t Philox::operator()() {
  if (left_ == 0) {
    ready_ = philox({++block_, 0, 0, index_}, key_);
    left_ = 4;
  }
  return ready_[static_cast<size_t>(4 - left_--)];
}

double Philox::uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

int64_t Philox::integer(int64_t below) {
  if (below < 1) fail(ErrorKind::invalid_argument, "integer", "{}, expected at least 1", below);
  const auto n = static_cast<uint64_t>(below);
  const uint64_t least = (0 - n) % n;  // 2^64 mod n: values below it are rejected to avoid bias
  Wide product = Wide{(*this)()} * n;
  while (static_cast<uint64_t>(product) < least) product = Wide{(*this)()} * n;
  return static_cast<int64_t>(product >> 64);
}

double Philox::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

bool Philox::chance(double probability) { return uniform() < probability; }

}  // namespace tessera::data
