// Runs the random programs of a range of seeds and prints those that fail as C++, then what the run covered.
//
//   programs FROM TO [--floors | --print | --as-drawn]
//
//   --floors     fails if the coverage is too small
//   --print      prints each program and runs none
//   --as-drawn   does not shrink failing programs
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sharding/runtime/processes.h"
#include "tests/programs/coverage.h"
#include "tests/programs/draw.h"
#include "tests/programs/evaluate.h"
#include "tests/programs/print.h"

namespace {

char running[64];

// Prints the seed of a program that crashed or took too long.
void on_signal(int signal) {
  const char* what = signal == SIGALRM ? " takes more than its time\n" : " crashes\n";
  if (write(1, running, std::strlen(running)) < 0 || write(1, what, std::strlen(what)) < 0) std::_Exit(3);
  std::_Exit(2);
}

// Suppresses LibTorch's warnings about sizes that the programs use on purpose.
class NoWarnings : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

constexpr unsigned seconds_for_one = 120;

// Returns the kind of a failure: its first line without digits, at most 60 characters.
std::string kind_of(const std::string& wrong) {
  std::string kind;
  for (const char c : wrong.substr(0, wrong.find('\n')))
    if (c < '0' || c > '9') kind += c;
  return kind.substr(0, 60);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tessera;
  using namespace tessera::programs;
  initialize();
  NoWarnings quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  for (const int signal : {SIGSEGV, SIGFPE, SIGABRT, SIGALRM}) std::signal(signal, on_signal);
  const std::string option = argc > 3 ? argv[3] : "";
  if (argc < 3 || argc > 4 || (argc == 4 && option != "--floors" && option != "--print" && option != "--as-drawn")) {
    std::printf("usage: programs FROM TO [--floors | --print | --as-drawn]\n");
    return 2;
  }
  const uint64_t from = std::strtoull(argv[1], nullptr, 10), to = std::strtoull(argv[2], nullptr, 10);
  const bool minimizes = option != "--as-drawn" && process_count() == 1;
  int passed = 0, failed = 0;
  Coverage coverage;
  for (uint64_t seed = from; seed < to; ++seed) {
    std::snprintf(running, sizeof running, "seed %llu", static_cast<unsigned long long>(seed));
    alarm(seconds_for_one);
    Program program = draw(seed);
    if (option == "--print") {
      std::printf("%s\n", as_cpp(program).c_str());
      continue;
    }
    std::string wrong = check(program, [&](const Node& node, const std::vector<Array>& operands, const auto& around) {
      coverage.add(program, node, operands, around);
    });
    if (wrong.empty()) {
      ++passed;
      continue;
    }
    ++failed;
    if (minimizes) {
      const std::string kind = kind_of(wrong);
      program =
          minimized(program, [&](const Program& p) { return is_well_conditioned(p) && kind_of(check(p)) == kind; });
      wrong = check(program);
    }
    std::printf("%s:\n%s%s\n", running, wrong.c_str(), as_cpp(program).c_str());
    std::fflush(stdout);
  }
  if (option == "--print") return 0;
  std::printf("%s", coverage.summary().c_str());
  if (option == "--floors" && !coverage.missing().empty()) {
    std::printf("%s", coverage.missing().c_str());
    ++failed;
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
