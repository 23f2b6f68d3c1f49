// Compares two mixtures of experts, with rows sorted by expert and with products with masks, in time and memory.
//
// Forward and backward, float32, on a mesh of one device. Arguments: the experts, the tokens, embed, hidden, the
// rounds, the masks' capacity factor (experts / 2: no choice is dropped). The two layers alternate, and each is first
// in every other round. Memory is the peak of a separate process, minus the peak of a process that only has the layer.
#include <cstdio>
#include <cstdlib>

#include "nn/layers/moe.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "tests/benchmarks/memory.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;

struct Sizes {
  int64_t experts, tokens, embed, hidden;
};

struct Layer {
  nn::MoeMlp moe;
  Array x;

  Layer(const Sizes& s, std::optional<double> capacity)
      : moe(nn::MoeMlp::init(Key(0), {"embed", s.embed}, {"hidden", s.hidden}, {"experts", s.experts},
                             {.capacity_factor = capacity, .gated = true})),
        x(normal(Key(1), {1, s.tokens, s.embed})) {}
  void step() const {
    nn::value_and_grad([](const nn::MoeMlp& layer, const Array& in) { return mean(square(layer(in).out)); })(moe, x);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const Sizes sizes{argument(1, 64), argument(2, 4096), argument(3, 64), argument(4, 128)};
  const int rounds = static_cast<int>(argument(5, 3));
  const double capacity = argc > 6 ? std::atof(argv[6]) : 1.25;
  const auto memory_of = [&](std::optional<double> factor) {
    const double layer = benchmarks::peak_of([&] { const Layer only(sizes, factor); });
    return benchmarks::peak_of([&] { Layer(sizes, factor).step(); }) - layer;
  };
  const double sorted_memory = memory_of({}), masks_memory = memory_of(capacity);
  const Layer sorted(sizes, {}), masks(sizes, capacity);
  const benchmarks::Pair times = benchmarks::time_in_turn(
      rounds, 1, [&](int) { masks.step(); }, [&](int) { sorted.step(); });
  std::printf(
      "masks, capacity factor %g: %.0f ms, %.0f MiB; sorted: %.0f ms, %.0f MiB; time %.1f times, memory %.1f times\n",
      capacity, times.first.median / 1e3, masks_memory, times.second.median / 1e3, sorted_memory,
      times.first.median / times.second.median, masks_memory / sorted_memory);
}
