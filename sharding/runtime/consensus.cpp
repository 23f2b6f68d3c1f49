// Compares texts by length and hash, and exchanges them only if they differ.
#include "sharding/runtime/consensus.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sstream>
#include <utility>

#include "sharding/base/fail.h"
#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/heartbeat.h"

namespace tessera::detail {
namespace {

constexpr int main_channel = 0;  // the channel of the thread that computes

at::Tensor gathered(int channel, const at::Tensor& mine, const WaitContext& waiting) {
  at::Tensor all = at::empty({world().count, mine.numel()}, mine.options());
  gather_by_channel(*world().agreement, channel, mine, all, waiting)->wait();
  return all;
}

int64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<int64_t>(hash);
}

// The maximum size of a text from another process. The memory for a text is allocated before it arrives. The largest
// texts are profiles, with 65 bytes per time slice, so this limit allows a million slices.
constexpr int64_t max_text_bytes = int64_t{64} << 20;

// Returns the text of each of these processes, whose rows `gather` returns; empty if all are equal.
template <class Gather>
std::vector<std::string> texts_by(const Gather& gather, const char* verb, const std::vector<int>& processes,
                                  const std::string& text) {
  at::Tensor mark = at::empty({2}, at::kLong);
  mark[0] = static_cast<int64_t>(text.size());
  mark[1] = hash_of(text);
  const at::Tensor marks = gather(mark);
  if ((marks == marks[0]).all().item<bool>()) return {};
  const at::Tensor sizes = marks.select(1, 0);
  for (size_t p = 0; p < processes.size(); ++p)
    if (const auto size = sizes[static_cast<int64_t>(p)].item<int64_t>(); size < 0 || size > max_text_bytes)
      fail(ErrorKind::other, verb, "process {} sends a text of {} bytes, expected at most {}. Send less at a time.",
           processes[p], size, max_text_bytes);
  at::Tensor mine = at::zeros({sizes.max().item<int64_t>() + 1}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = gather(mine);
  std::vector<std::string> texts;
  for (int64_t p = 0; p < all.size(0); ++p) {
    const auto* row = static_cast<const char*>(all[p].const_data_ptr());
    texts.emplace_back(row, ::strnlen(row, static_cast<size_t>(all.size(1))));
  }
  return texts;
}

std::vector<std::string> texts_of_all(int channel, const std::string& text, const WaitContext& waiting) {
  if (world().count == 1) return {};
  return texts_by([&](const at::Tensor& mine) { return gathered(channel, mine, waiting); }, waiting.operation,
                  everyone(), text);
}

// Returns the first line that differs, from each text.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  do {
    if (!std::getline(left, x)) x = "nothing";
    if (!std::getline(right, y)) y = "nothing";
  } while (x == y && x != "nothing");
  return {x, y};
}

void refuse_difference(const char* verb, const std::vector<std::string>& texts, const std::vector<int>& processes) {
  for (size_t p = 1; p < texts.size(); ++p) {
    if (texts[p] == texts[0]) continue;
    const auto [first, other] = first_difference(texts[0], texts[p]);
    fail(ErrorKind::inconsistent, verb,
         "process {} has {}, process {} has {}. All processes must run the same program with the same arguments.",
         processes[0], cut_text(first), processes[p], cut_text(other));
  }
}

}  // namespace

void check_agreement(const char* verb, int processes, const std::string& text) {
  if (processes == 1) return;
  refuse_difference(verb, texts_of_all(main_channel, text, {.operation = verb, .where = {}}), everyone());
}

void check_agreement(const WaitContext& waiting, const std::vector<int>& processes, const std::string& text) {
  if (processes.size() == 1) return;
  const auto gather = [&](const at::Tensor& mine) {
    ProcessGroup& group = process_group(processes);
    at::Tensor all = at::empty({group.size(), mine.numel()}, mine.options());
    group.all_gather(mine, all, waiting)->wait();
    return all;
  };
  const bool are_all = static_cast<int>(processes.size()) == world().count;
  refuse_difference(
      waiting.operation,
      are_all ? texts_of_all(main_channel, text, waiting) : texts_by(gather, waiting.operation, processes, text),
      processes);
}

std::vector<std::string> gather_texts(const char* verb, const std::string& mine) {
  std::vector<std::string> texts = texts_of_all(main_channel, mine, {.operation = verb, .where = {}});
  if (texts.empty()) texts.assign(static_cast<size_t>(world().count), mine);
  return texts;
}

std::vector<int64_t> gather_numbers(const char* verb, int64_t mine) {
  if (world().count == 1) return {mine};
  const at::Tensor all = gathered(main_channel, at::full({1}, mine, at::kLong), {.operation = verb, .where = {}});
  const auto* numbers = static_cast<const int64_t*>(all.const_data_ptr());
  return {numbers, numbers + all.numel()};
}

void wait_for_the_end() {
  texts_of_all(main_channel, "", {.operation = "exit", .where = {}, .longest = std::chrono::milliseconds::max()});
}

Votes::Votes(const char* verb, std::string what) : verb_(verb), what_(std::move(what)) {
  static std::atomic<int> boxes = main_channel;
  channel_ = ++boxes;
}

bool Votes::all(bool yes) { return texts(yes ? "yes" : "no").empty() && yes; }

void Votes::check_same(const std::string& mine, std::string_view what_to_do) {
  const std::vector<std::string> all = texts(mine);
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& text) { return text != all[0]; });
  if (other == all.end()) return;  // only hashes differ: a process sent a wrong one
  fail(ErrorKind::inconsistent, verb_, "{}: process 0 has {}, process {} has {}. {}", what_, cut_text(all[0]),
       other - all.begin(), cut_text(*other), what_to_do);
}

std::vector<std::string> Votes::texts(const std::string& mine) {
  return texts_of_all(channel_, mine,
                      {.operation = verb_, .where = {}, .what = &what_, .longest = 11 * world().timeout});
}

}  // namespace tessera::detail
