// Memory for a slot that comes late, or is not to be had: every operation, forward and backward.
// backward.
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "sharding/distributed/processes.h"
#include "tests/sharding/operations/cases.h"

namespace tessera::testing::faults_test {
namespace {

constexpr const char* no_memory = "no memory for this one";

// The memory of all threads' tensors, while it lives: it counts what is allocated, may delay each allocation, and may
// refuse one.
class Memory final : public c10::Allocator {
 public:
  Memory() { c10::SetCPUAllocator(this, priority); }
  ~Memory() override { c10::SetCPUAllocator(before_, priority); }

  c10::DataPtr allocate(size_t bytes) override {
    const int64_t number = ++allocated_;
    if (number == refused_) throw std::runtime_error(no_memory);
    if (delays_) wait(std::chrono::microseconds(number * 37 % 50));
    ++live;
    void* memory = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    return {memory, memory, &free_memory, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Of what follows: how many there were until now, whether each is late, the number of the one that is refused.
  void watch(bool delays, int64_t refused) { allocated_ = 0, delays_ = delays, refused_ = refused; }
  int64_t allocated() const { return allocated_; }

  static inline std::atomic<int64_t> live = 0;

 private:
  static constexpr uint8_t priority = 255;
  static void free_memory(void* memory) { --live, std::free(memory); }
  static void wait(std::chrono::microseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
    }
  }

  c10::Allocator* before_ = c10::GetCPUAllocator();
  std::atomic<int64_t> allocated_ = 0, refused_ = -1;
  std::atomic<bool> delays_ = false;
};

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

// Of the last inputs' placements those that are cut: every slot has work of its own.
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
    run();  // until then LibTorch's engine keeps what waited for the pass that failed
    EXPECT_EQ(Memory::live, live) << "after memory " << refused << " of " << all;
  }
  EXPECT_TRUE(same_bits(run(), expected)) << "after the faults";
}

INSTANTIATE_TEST_SUITE_P(Operations, Faults, ::testing::ValuesIn(all_cases()), name_of_case);

}  // namespace
}  // namespace tessera::testing::faults_test
