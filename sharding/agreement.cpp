// Texts compared by length and hash, and read only where they differ.
#include "sharding/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <sstream>
#include <vector>

#include "sharding/error.h"
#include "sharding/process_group.h"

namespace tessera::detail {
namespace {

at::Tensor gathered(ProcessGroup& group, const at::Tensor& mine, const Waiting& waiting) {
  at::Tensor all = at::empty({group.size(), mine.numel()}, mine.options());
  group.all_gather(mine, all, waiting);
  return all;
}

int64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<int64_t>(hash);
}

std::vector<std::string> texts_of_all(ProcessGroup& group, const std::string& text, int64_t longest,
                                      const Waiting& waiting) {
  at::Tensor mine = at::zeros({longest + 1}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = gathered(group, mine, waiting);
  std::vector<std::string> texts;
  for (int p = 0; p < group.size(); ++p) texts.emplace_back(static_cast<const char*>(all[p].const_data_ptr()));
  return texts;
}

// The first line that differs, of each.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  do {
    if (!std::getline(left, x)) x = "nothing";
    if (!std::getline(right, y)) y = "nothing";
  } while (x == y && x != "nothing");
  return {x, y};
}

}  // namespace

void check_agreement(const char* verb, int processes, const std::string& text) {
  if (processes == 1) return;
  std::vector<int> all(processes);
  std::iota(all.begin(), all.end(), 0);
  ProcessGroup& group = process_group(all);
  const Waiting waiting{.operation = verb, .where = {}};
  at::Tensor mine = at::empty({2}, at::kLong);
  mine[0] = static_cast<int64_t>(text.size());
  mine[1] = hash_of(text);
  const at::Tensor marks = gathered(group, mine, waiting);
  if ((marks == marks[0]).all().item<bool>()) return;
  const auto texts = texts_of_all(group, text, marks.select(1, 0).max().item<int64_t>(), waiting);
  for (int p = 1; p < processes; ++p) {
    if (texts[p] == texts[0]) continue;
    const auto [first, other] = first_difference(texts[0], texts[p]);
    fail(ErrorKind::inconsistent, verb,
         fmt::format("process 0 has {}, process {} has {}. All processes must run the same program with the same "
                     "arguments.",
                     first, p, other));
  }
}

}  // namespace tessera::detail
