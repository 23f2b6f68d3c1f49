// Prints the contents of a checkpoint without loading it: inspect DIR, or inspect DIR/STEP.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>

#include <tessera/nn/checkpoint.h>

int main(int argc, char** argv) {
  if (argc != 2 || std::string_view(argv[1]).starts_with("--")) {
    std::cerr << "error: [command line] one folder is expected: inspect DIR for the newest checkpoint in it, inspect "
                 "DIR/STEP for one.\n";
    return 2;
  }
  try {
    const auto steps = tessera::nn::checkpoint_steps(argv[1]);
    if (!steps.empty()) fmt::print("checkpoints of {} steps, {} to {}\n", steps.size(), steps.front(), steps.back());
    fmt::print("{}", tessera::nn::describe_checkpoint(argv[1]));
    return std::fflush(stdout) ? 1 : 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
