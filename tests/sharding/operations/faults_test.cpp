// Every operation, forward and backward, if the memory for a local shard is late or unavailable.
#include "sharding/runtime/processes.h"
#include "tests/sharding/operations/cases.h"
#include "tests/sharding/refused_memory.h"

namespace tessera::testing::faults_test {
namespace {

class Faults : public ::testing::TestWithParam<Case> {
 protected:
  Faults() { at::set_num_threads(4); }
  ~Faults() override { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::allclose(a, b, 0, 0, /*equal_nan=*/true));
}

bool same_bits(const Outcome& a, const Outcome& b) {
  bool same = same_bits(a.value, b.value) && a.ledger == b.ledger;
  for (size_t i = 0; i < a.gradients.size(); ++i) same &= same_bits(a.gradients[i], b.gradients[i]);
  return same;
}

// Returns, for each input, the last of its shardings over some axis, so that each device has its own work.
std::vector<PartitionSpec> cut_placements(const Function& f, Mesh mesh) {
  std::vector<PartitionSpec> specs;
  for (const at::Tensor& t : f.inputs) {
    PartitionSpec& chosen = specs.emplace_back();
    for (const PartitionSpec& spec : placements(mesh, t.sizes().vec()))
      if (spec.unreduced_axes().empty() && !axes_of(spec).empty()) chosen = spec;
  }
  return specs;
}

TEST_P(Faults, LateOrMissingMemoryChangesNothing) {
  const Function& f = GetParam().function;
  const Mesh mesh = make_mesh({{"x", 4}});
  if (process_count() > 1 || mesh.device() != "cpu")
    GTEST_SKIP() << "the memory is this process's and the CPU's; other processes would wait";
  const Outcome plain = reference(f);
  const at::Tensor weights = plain.value.requires_grad() ? cotangent(plain.value) : at::Tensor();
  const std::vector<PartitionSpec> specs = cut_placements(f, mesh);
  const auto run = [&] { return compute(f, weights, specs, mesh, Role::activation, Role::activation, {}); };
  const Outcome expected = run();
  Memory memory;
  run();
  const int64_t all = memory.allocated(), live = Memory::live;
  memory.watch(/*delays=*/true, -1);
  EXPECT_TRUE(same_bits(run(), expected)) << "late memory";
  for (int64_t refused = 1; refused <= all; refused += 1 + all / 16) {
    memory.watch(false, refused);
    try {
      run();
      ADD_FAILURE() << "memory " << refused << " of " << all << " was missed by nobody";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find(no_memory), std::string::npos) << error.what();
    }
    memory.watch(false, -1);
    run();  // frees what LibTorch's engine keeps of the failed pass
    EXPECT_EQ(Memory::live, live) << "after memory " << refused << " of " << all;
  }
  EXPECT_TRUE(same_bits(run(), expected)) << "after the faults";
}

INSTANTIATE_TEST_SUITE_P(Operations, Faults, ::testing::ValuesIn(all_cases()), name_of_case);

}  // namespace
}  // namespace tessera::testing::faults_test
