// Compares a decoder's head and loss in chunks of positions with unchunked logits: ratios of time and memory.
//
// Loss and the gradients of x and kernel, float32, on a mesh of one device. Arguments: the tokens, embed, vocab, the
// rounds. The two losses alternate, and each is first in every other round. The last row is the chunked loss under
// remat: the cost of recomputing the logits in the backward pass, instead of computing the gradients with the loss.
//
// Memory: peak of a separate process that runs two steps, minus the peak of a process that only creates the operands.
// Time: the minimum over all rounds. CPU time depends less on other programs if OMP_WAIT_POLICY=PASSIVE keeps idle
// threads from spinning.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "sharding/autodiff/remat.h"
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "tests/benchmarks/memory.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;

struct Sizes {
  int64_t tokens, embed, vocab;
};

struct Head {
  Array x, kernel, labels;

  explicit Head(const Sizes& s)
      : x(normal(Key(0), {s.tokens, s.embed})),
        kernel(0.02 * normal(Key(1), {s.embed, s.vocab})),
        labels(randint(Key(2), {s.tokens}, 0, s.vocab)) {}
};

struct Way {
  int64_t chunk = 0;  // 0: unchunked logits
  bool again = false;
};

void step(const Head& head, const Way& way) {
  Tape tape({head.x, head.kernel});
  const auto loss = [&](const std::vector<Array>& of) -> std::vector<Array> {
    if (way.chunk) return {linear_cross_entropy(of[0], of[1], head.labels, {.chunk = way.chunk})};
    return {cross_entropy(matmul(of[0], of[1]), head.labels)};
  };
  tape.gradients((way.again ? remat(loss, tape.shadows()) : loss(tape.shadows()))[0]);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const Sizes sizes{argument(1, 4096), argument(2, 256), argument(3, 50257)};
  const int rounds = static_cast<int>(argument(4, 5));
  const std::vector<Way> ways{{128}, {256}, {512}, {1024}, {512, true}};
  const double operands = benchmarks::peak_of([&] { const Head head(sizes); });
  const auto memory_of = [&](const Way& way) {
    return benchmarks::peak_of([&] {
             const Head head(sizes);
             for (int i = 0; i < 2; ++i) step(head, way);
           }) -
           operands;
  };
  const double whole = memory_of({});
  std::vector<double> peaks;
  for (const Way& way : ways) peaks.push_back(memory_of(way));

  const Head head(sizes);
  std::printf("whole logits: %.0f MiB\n%14s %8s %8s %8s %8s\n", whole, "chunk", "time", "cpu", "MiB", "memory");
  for (size_t i = 0; i < ways.size(); ++i) {
    double cpu[2] = {0, 0};
    const auto run = [&](const Way& way, double& seconds) {
      const std::clock_t start = std::clock();
      step(head, way);
      seconds += static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    };
    const auto times = benchmarks::time_in_turn(
        rounds, 1, [&](int) { run({}, cpu[0]); }, [&](int) { run(ways[i], cpu[1]); });
    std::printf("%8ld %5s %8.2f %8.2f %8.0f %8.2f\n", static_cast<long>(ways[i].chunk), ways[i].again ? "again" : "",
                times.second.least / times.first.least, cpu[1] / cpu[0], peaks[i], peaks[i] / whole);
    std::fflush(stdout);
  }
}
