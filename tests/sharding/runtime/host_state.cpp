// Prints the process state that a library could change in its host program. Built with Tessera and without it.
//
//   host_state          prints the state at the start of main
//   host_state mesh     fails if training changes more than the number of threads, or finalize() leaves workers
//   host_state cuda     prints why there is no mesh of GPUs in a program with Tessera's CPU allocator, or "loaded"
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#ifdef TESSERA_LINKED
#include "nn/transformations/value_and_grad.h"
#include "sharding/base.h"
#include "sharding/kernels.h"
#include "sharding/operations.h"
#include "sharding/placement.h"
#include "sharding/runtime.h"
#endif

namespace {

std::ptrdiff_t threads() {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries("/proc/self/task"), Entries());
}

std::string signals() {
  std::string text;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int number = 1; number < SIGRTMIN; ++number) {
    struct sigaction action;
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL)
      text += "signal " + std::to_string(number) + " is handled\n";
    if (sigismember(&blocked, number) == 1) text += "signal " + std::to_string(number) + " is blocked\n";
  }
  return text;
}

// malloc maps a block of 31 MiB unless the program has called mallopt. The block is not freed, because freeing a mapped
// block raises glibc's threshold for mapping.
std::string allocators() {
  const size_t before = mallinfo2().hblks;
  [[maybe_unused]] void* volatile kept = std::malloc(31 << 20);
  const size_t mapped = mallinfo2().hblks - before;
  return "LibTorch's CPU allocator: " + std::to_string(c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator()) +
         "\nblocks mapped by malloc: " + std::to_string(mapped) + "\n";
}

std::string environment() {
  std::string text;
  for (char** entry = environ; *entry; ++entry) text += std::string(*entry) + "\n";
  return text;
}

std::string dispatcher() {
  c10::Dispatcher& all = c10::Dispatcher::singleton();
  std::string text;
  for (const c10::DispatchKey key : c10::DispatchKeySet(c10::DispatchKeySet::FULL))
    text += std::string(c10::toString(key)) + ": " + std::to_string(all.getRegistrationsForDispatchKey(key).size()) +
            " kernels" + (all.hasBackendFallbackForDispatchKey(key) ? ", a fallback\n" : "\n");
  return text;
}

std::string state() {
  return signals() + allocators() + environment() + dispatcher() +
         "intra-op threads: " + std::to_string(at::get_num_threads()) + "\n";
}

#ifdef TESSERA_LINKED
void expect(bool is_so, const char* failure) {
  if (is_so) return;
  std::fprintf(stderr, "%s\n", failure);
  std::exit(1);
}

void train() {
  using namespace tessera;
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array x = device_put(ones({256, 256}), NamedSharding(mesh, P{"data"}));
  const Array w = device_put(ones({256, 256}), NamedSharding(mesh, P{none, "model"}));
  const auto loss = [&](const Array& weight) { return sum(tanh(matmul(x, weight))); };
  for (int step = 0; step < 3; ++step) nn::value_and_grad(loss)(w);
}

void check_mesh() {
  const std::string before = state();
  const std::ptrdiff_t threads_before = threads();
  train();
  const std::string after = state();
  expect(after == before,
         ("a mesh and a gradient have changed the program's state:\n" + before + "\n" + after).c_str());
  const auto workers = static_cast<std::ptrdiff_t>(std::thread::hardware_concurrency()) - 1;
  expect(threads() <= threads_before + workers, "a mesh and a gradient have started other threads than workers");
  tessera::finalize();
  expect(threads() == threads_before, "finalize() has not ended the workers");
  train();
  tessera::finalize();
  expect(threads() == threads_before, "finalize() has not ended the workers of a second mesh");
  expect(tessera::use_caching_cpu_allocator(), "use_caching_cpu_allocator() does nothing");
  expect(state() != before, "the state does not show the allocator");
}

void print_cuda() try {
  expect(tessera::use_caching_cpu_allocator(), "use_caching_cpu_allocator() does nothing");
  tessera::make_mesh({{"data", 1}}, {.device = "cuda"});
  std::puts("loaded");
} catch (const tessera::Error& error) {
  std::puts(error.what());
}
#endif

}  // namespace

int main(int argc, [[maybe_unused]] char** argv) {
#ifdef TESSERA_LINKED
  if (argc > 1 && std::string(argv[1]) == "cuda") return print_cuda(), 0;
  if (argc > 1) return check_mesh(), 0;
#endif
  std::printf("%sthreads: %td\n", state().c_str(), argc == 1 ? threads() : 0);
}
