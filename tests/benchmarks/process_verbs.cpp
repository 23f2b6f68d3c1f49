// Compares collectives of a process group with Gloo's own, on 12.8 MB, alternating: process_verbs [BYTES [TURNS]].
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/processes.h"
#include "tests/benchmarks/timing.h"

namespace tessera {
namespace {

using Gloo = c10d::ProcessGroupGloo;

// Returns a second group of c10d, which meets at its own port.
c10::intrusive_ptr<Gloo> plain_gloo() {
  const detail::World& world = detail::world();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT")) + 1);
  options.isServer = world.index == 0;
  options.waitWorkers = false;
  auto store = c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), options);
  const auto gloo = Gloo::Options::create();
  gloo->devices.push_back(Gloo::createDeviceForHostname(world.address));
  return c10::make_intrusive<Gloo>(store, world.index, world.count, gloo);
}

void compare(int64_t bytes, int turns) {
  detail::ProcessGroup& ours = detail::process_group(detail::everyone());
  const c10::intrusive_ptr<Gloo> gloo = plain_gloo();
  const int n = ours.size(), me = ours.index(), next = (me + 1) % n, before = (me + n - 1) % n;
  const int64_t floats = bytes / 4 / n * n;
  at::Tensor x = at::full({floats}, 1e-3f), part = at::full({floats / n}, 1.0f), all = at::full({n, floats}, 1.0f),
             parts = at::full({n, floats / n}, 1.0f), flat = all.view({-1}), flat_parts = parts.view({-1}),
             received = at::empty({n, floats / n}), other = at::empty({floats});
  const detail::WaitContext here{.operation = "benchmark", .where = {}};
  std::vector<at::Tensor> list{x}, sent{x}, got{other};
  std::vector<int64_t> even;
  const std::vector<std::tuple<const char*, std::function<void()>, std::function<void()>>> verbs{
      {"all_reduce", [&] { ours.all_reduce(x, detail::ReduceOp::sum, here)->wait(); },
       [&] { gloo->allreduce(list)->wait(); }},
      {"all_gather", [&] { ours.all_gather(x, all, here)->wait(); }, [&] { gloo->_allgather_base(flat, x)->wait(); }},
      {"reduce_scatter", [&] { ours.reduce_scatter(parts, part, here)->wait(); },
       [&] { gloo->_reduce_scatter_base(part, flat_parts)->wait(); }},
      {"all_to_all", [&] { ours.all_to_all(parts, received, here)->wait(); },
       [&] { gloo->alltoall_base(received, parts, even, even)->wait(); }},
      {"exchange",
       [&] {
         ours.exchange({{next, x}}, {{before, other}}, here)->wait();
       },
       [&] {
         const auto in = gloo->recv(got, before, 0), out = gloo->send(sent, next, 0);
         in->wait();
         out->wait();
       }},
  };
  if (me == 0)
    fmt::print("{:15} {:>20} {:>20} {:>13}\n", "", "ours: best, median", "Gloo: best, median", "ratio of both");
  for (const auto& [name, mine, theirs] : verbs) {
    std::vector<double> a, b;  // milliseconds
    for (int turn = 0; turn < turns + 2; ++turn)
      for (const auto& [verb, times] : {std::pair(&mine, &a), std::pair(&theirs, &b)}) {
        x.fill_(1e-3f);
        gloo->barrier()->wait();
        const double ms = 1e3 * benchmarks::seconds_of(*verb);
        if (turn >= 2) times->push_back(ms);
      }
    const benchmarks::Times o = benchmarks::summary(a), g = benchmarks::summary(b);
    if (me == 0)
      fmt::print("{:15} {:9.2f} {:7.2f} ms {:9.2f} {:7.2f} ms {:6.2f} {:6.2f}\n", name, o.least, o.median, g.least,
                 g.median, o.least / g.least, o.median / g.median);
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run_program([&] {
    tessera::initialize();
    tessera::compare(argc > 1 ? std::atoll(argv[1]) : 12'800'000, argc > 2 ? std::atoi(argv[2]) : 20);
    return 0;
  });
}
