// Comparisons between processes: meshes always; with TESSERA_CHECK also the next operation and replicas.
#include <fmt/ranges.h>

#include "sharding/accounting/finite_check.h"
#include "sharding/base/environment.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/placement/mesh.h"
#include "sharding/runtime/process_group.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::check_test {
namespace {

using namespace tessera::testing;

Mesh line_of_processes() { return make_mesh({{"a", process_count()}}); }

// Meshes are compared before the first collective, even without filter_shard.
TEST(ManyProcesses, MeshesAreComparedBeforeTheyAreUsed) {
  std::vector<int> turned = detail::everyone(), straight = detail::everyone();
  std::swap(turned[0], turned[1]);
  const auto line = [](const std::vector<int>& devices) {
    return make_mesh({{"line", process_count()}}, {.devices = devices});
  };
  const Array x = placed(random_tensor({8, 16}, 1), line(process_index() == 0 ? turned : straight), P{"line"});
  const auto mesh_over = [](int process, const std::vector<int>& devices) {
    return fmt::format("process {} has the mesh (line={}) over the devices {}", process, process_count(),
                       fmt::join(devices, ", "));
  };
  expect_error(ErrorKind::inconsistent,
               {mesh_over(0, turned), mesh_over(1, straight), "All processes must run the same program"},
               [&] { reshard(x, P{}); });
}

// Process 0 runs a different program.
struct Divergence {
  const char* name;
  std::string first, other;  // the descriptions of their next operations
  std::function<void(const Array&x)> in_first, in_others;
};

void take_gradients(const Array& x, const std::vector<Array>& weights, const GradientOptions& options = {}) {
  Tape tape(weights, options);
  Array loss = sum(x * tape.shadows()[0]);
  for (size_t i = 1; i < weights.size(); ++i) loss = loss + sum(x * tape.shadows()[i]);
  tape.gradients(loss);
}

std::vector<Divergence> divergences() {
  const Array w = placed(random_tensor({8, 16}, 2), line_of_processes(), P{});
  const Array v = placed(random_tensor({1, 16}, 3), line_of_processes(), P{});
  return {
      {"another collective", "all_gather over a", "all_to_all over a", [](const Array& x) { reshard(x, P{}); },
       [](const Array& x) {
         reshard(x, P{none, "a"});
       }},
      {"a parameter of another shape", "replicas of float64[8,16], for mul", "replicas of float64[1,16], for gradients",
       [w](const Array& x) { take_gradients(x, {w}); }, [v](const Array& x) { take_gradients(x, {v}); }},
      {"a bucket of gradients", "all_reduce over a of float64 (16)", "all_gather over a",
       [v](const Array& x) { take_gradients(x, {v}); },
       [v](const Array& x) {
         take_gradients(x, {v}, {.reduce = false});
         reshard(x, P{});
       }},
      {"another line", "all_gather over a", "all_gather over a", [](const Array& x) { reshard(x, P{}); },
       [](const Array& x) { reshard(x, P{}); }},
      {"an exchange of blocks", "block_exchange over a", "all_gather over a",
       [](const Array& x) {
         concatenate({x, x}, 0);
       },
       [](const Array& x) { reshard(x, P{}); }},
      {"a sum", "all_reduce over a", "all_gather over a", [](const Array& x) { reshard(sum(x, {0}), P{}); },
       [](const Array& x) { reshard(x, P{}); }},
      {"a parameter more", "all_reduce over a of float64 (16)", "replicas of float64[1,16], for gradients",
       [v](const Array& x) { take_gradients(x, {v}); },
       [v](const Array& x) {
         take_gradients(x, {v, placed(random_tensor({1, 16}, 4), line_of_processes(), P{})});
       }},
  };
}

// The error has both descriptions, on all processes. Afterwards the processes are in step again.
TEST(ManyProcesses, UnderCheckAnotherProgramIsAnErrorOnAll) {
  const Array x = placed(random_tensor({8, 16}, 1), line_of_processes(), P{"a"});
  for (const Divergence& d : divergences()) {
    SCOPED_TRACE(d.name);
    const detail::CheckScope checked;
    const std::string words =
        error_of(ErrorKind::inconsistent, [&] { process_index() == 0 ? d.in_first(x) : d.in_others(x); });
    EXPECT_EQ(words.rfind("[TESSERA_CHECK] process 0 has " + d.first, 0), 0u) << words;
    const size_t second = words.find(", process 1 has " + d.other);
    ASSERT_NE(second, std::string::npos) << words;
    EXPECT_NE(words.rfind("check_test.cpp:", second), std::string::npos) << "process 0's line: " << words;
  }
}

TEST(ManyProcesses, UnderCheckTheSameProgramRuns) {
  const Array x = placed(random_tensor({8, 16}, 1), line_of_processes(), P{"a"});
  const Array w = placed(random_tensor({8, 16}, 2), line_of_processes(), P{});
  const detail::CheckScope checked;
  take_gradients(x, {w});
  EXPECT_LE(difference(whole(concatenate({x, x}, 0)), at::cat({random_tensor({8, 16}, 1), random_tensor({8, 16}, 1)})),
            0);
}

// Process 1 has a different replica: first of a weight that is sharded before use, then of a weight that is used
// replicated.
TEST(ManyProcesses, UnderCheckReplicasAreCompared) {
  const Mesh mesh = make_mesh({{"a", process_count()}, {"b", 2}});
  const Array x = placed(random_tensor({8, 16}, 1), mesh, P{"a"});
  for (const auto& [shape, before] : {std::pair<Shape, const char*>{{8, 16}, "mul"}, {{1, 16}, "gradients"}}) {
    const Array w = place_parameter(from_tensor(random_tensor(shape, 2)), NamedSharding(mesh, P{}), "layers.0.kernel");
    if (process_index() == 1) w.impl()->local[0][0][0].add_(1e-12);
    take_gradients(x, {w});
    const detail::CheckScope checked;
    expect_error(
        ErrorKind::inconsistent,
        fmt::format("[TESSERA_CHECK] layers.0.kernel: float64[{},16]: processes 0 and 1 hold different values of the "
                    "same block, before {}. Give all processes the same arguments, seeds and values, and do not write "
                    "into the tensors of the library. Otherwise this is a bug of the library.",
                    shape[0], before),
        [&] { take_gradients(x, {w}); });
  }
}

// The processes of the other stage are at another point of the program.
TEST(ManyProcesses, UnderCheckTheProcessesOfAStageAreCompared) {
  if (process_count() != 4) return;
  const Mesh stage = sub_mesh(make_mesh({{"pipe", 2}, {"a", 2}}), "pipe", 1);
  const Array x = placed(random_tensor({8, 16}, 1), stage, P{"a"});
  const detail::CheckScope checked;
  if (process_index() < 2) return;
  const std::string words = error_of(ErrorKind::inconsistent, [&] {
    reshard(x, process_index() == 2 ? P{} : P{none, "a"});
  });
  EXPECT_EQ(words.rfind("[TESSERA_CHECK] process 2 has all_gather over a of", 0), 0u) << words;
  EXPECT_NE(words.find(", process 3 has all_to_all over a of"), std::string::npos) << words;
}

// Other processes continue until they wait for this one.
TEST(ManyProcesses, AFiniteCheckNamesTheProcessThatFindsSomething) {
  at::Tensor values = at::ones({4 * process_count(), 2});
  values[5][1] = 0;
  const Array x = placed(values, line_of_processes(), P{"a"});
  const DetectNonFinite scope;
  const auto expect_in_one = [](const std::initializer_list<std::string>& words, const std::function<void()>& call) {
    process_index() == 1 ? expect_error(ErrorKind::not_finite, words, call) : call();
  };
  expect_in_one({"[log] check_test.cpp:", "1 of 8 values is inf", " on the device a=1 of process 1; given"},
                [&] { log(x); });
  expect_in_one({"[sqrt] check_test.cpp:", ", backward: 1 of 8 values is inf"}, [&] {
    Tape tape({x});
    tape.gradients(sum(sqrt(tape.shadows()[0])));
  });
}

}  // namespace
}  // namespace tessera::check_test
