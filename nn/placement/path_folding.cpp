// Splits paths at their numbers, groups them, and joins each group into one folded path.
#include <algorithm>
#include <map>
#include <set>

#include "nn/placement/paths.h"

namespace tessera::nn::detail {

namespace {

using Names = std::vector<std::string>;

// Splits a path at its dots. Dots in braces, {0..79}, do not separate names.
Names names_of(const std::string& path) {
  Names names(1);
  bool braces = false;
  for (const char c : path) {
    braces = c == '{' || (braces && c != '}');
    if (c == '.' && !braces)
      names.emplace_back();
    else
      names.back() += c;
  }
  return names;
}

std::string joined(const Names& names, size_t begin, size_t end) {
  std::string path;
  for (size_t i = begin; i < end; ++i) path += (i == begin ? "" : ".") + names[i];
  return path;
}

// Accepts at most 9 digits without leading zeros, so that the number fits an int and prints as the same text.
bool is_number(const std::string& name) {
  return !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos &&
         (name == "0" || name[0] != '0');
}

struct Entry {
  size_t index;
  std::vector<int> numbers;
};

struct Group {
  Names names;
  std::vector<size_t> positions;  // indices in `names` at which the numbers are
  std::vector<Entry> entries;
};

// Returns the numbers as text: {0..3,8}.
std::string to_string(const std::set<int>& numbers) {
  std::string text;
  for (auto first = numbers.begin(); first != numbers.end();) {
    auto last = first;
    while (std::next(last) != numbers.end() && *std::next(last) == *last + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(*first);
    if (first != last) text += (*last == *first + 1 ? "," : "..") + std::to_string(*last);
    first = std::next(last);
  }
  return numbers.size() == 1 ? text : '{' + text + '}';
}

Folded folded(const Group& group, const std::vector<std::set<int>>& numbers) {
  Names names = group.names;
  for (size_t i = 0; i < numbers.size(); ++i) names[group.positions[i]] = to_string(numbers[i]);
  Folded result{joined(names, 0, names.size()), {}};
  for (const Entry& entry : group.entries) result.members.push_back(entry.index);
  return result;
}

// Folds the group into one line if it has all combinations of its numbers. Otherwise splits it by the last number that
// differs.
void fold_group(const Group& group, std::vector<Folded>& out) {
  std::vector<std::set<int>> numbers(group.positions.size());
  size_t combinations = 1, differing = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (const Entry& entry : group.entries) numbers[i].insert(entry.numbers[i]);
    combinations *= numbers[i].size();
    if (numbers[i].size() > 1) differing = i;
  }
  if (combinations == group.entries.size()) return out.push_back(folded(group, numbers));
  if (combinations == 1) {  // several entries of one path
    for (const Entry& entry : group.entries) out.push_back(folded({group.names, group.positions, {entry}}, numbers));
    return;
  }
  std::map<int, Group> apart;
  for (const Entry& entry : group.entries) {
    Group& part = apart[entry.numbers[differing]];
    part.names = group.names, part.positions = group.positions;
    part.entries.push_back(entry);
  }
  for (const auto& [number, part] : apart) fold_group(part, out);
}

}  // namespace

std::vector<Folded> fold_paths(const std::vector<std::string>& paths, const std::vector<std::string>& looks) {
  std::map<std::pair<Names, std::string>, Group> groups;
  for (size_t i = 0; i < paths.size(); ++i) {
    Names names = names_of(paths[i]);
    Entry entry{i, {}};
    std::vector<size_t> positions;
    for (size_t n = 0; n < names.size(); ++n) {
      if (!is_number(names[n])) continue;
      entry.numbers.push_back(std::stoi(names[n]));
      positions.push_back(n);
      names[n] = "#";
    }
    Group& group = groups[{names, looks[i]}];
    group.names = std::move(names), group.positions = std::move(positions);
    group.entries.push_back(std::move(entry));
  }
  std::vector<Folded> all;
  for (const auto& [key, group] : groups) fold_group(group, all);
  std::sort(all.begin(), all.end(), [](const Folded& a, const Folded& b) { return a.members[0] < b.members[0]; });
  return all;
}

std::string elided(const std::string& path, size_t width) {
  if (path.size() <= width) return path;
  const Names names = names_of(path);
  for (const size_t tail : {2, 1})
    for (size_t head = names.size(); head-- > 1;) {
      if (head + tail >= names.size()) continue;
      const std::string shorter = joined(names, 0, head) + ".." + joined(names, names.size() - tail, names.size());
      if (shorter.size() <= width) return shorter;
    }
  if (width <= 2) return path.substr(path.size() - width);
  return ".." + path.substr(path.size() - (width - 2));
}

}  // namespace tessera::nn::detail
