// Agreement of the processes that save or restore: on the success of each stage, and on who has the values.
#include <algorithm>
#include <utility>

#include "nn/checkpoint/save.h"
#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/runtime/processes.h"

namespace tessera::nn {

using namespace tessera::detail;

void together(const Processes& processes, const std::filesystem::path& path, const char* verb,
              const std::function<void()>& f) {
  std::exception_ptr error;
  try {
    f();
  } catch (...) {
    error = std::current_exception();
  }
  bool all = !error;
  try {
    if (processes.all_ok) all = processes.all_ok(!error);
  } catch (...) {  // a process is lost; an error of this process takes precedence
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
  if (!all)
    fail(ErrorKind::other, verb, "{}: another process could not {} its part. Its own error gives the reason.",
         path.string(), verb);
}

Processes voting_by(std::shared_ptr<Votes> votes) {
  Processes all{.process_index = process_index(), .num_processes = process_count()};
  if (all.num_processes > 1) all.all_ok = [votes = std::move(votes)](bool ok) { return votes->all(ok); };
  return all;
}

bool is_of_several(const Leaf& leaf, const std::optional<MeshRules>& mesh_rules) {
  const auto crosses = [](const MeshImpl* mesh) { return mesh && whole_of(mesh)->processes > 1; };
  if (leaf.value->is_absent()) return false;
  return crosses(leaf.value->impl()->type->mesh) ||
         (mesh_rules && leaf.value->is_lazy() && crosses(mesh_rules->mesh().impl()));
}

void together(const Leaves& model, const std::filesystem::path& path, const char* verb,
              const std::function<void()>& f) {
  if (std::none_of(model.begin(), model.end(), [](const Leaf& leaf) { return is_of_several(leaf); })) return f();
  together(voting_by(std::make_shared<Votes>(verb, path.string())), path, verb, f);
}

WhoHas who_has_values(const NamedState& state, Votes& votes) {
  std::string mine;  // one letter per array; all processes vote, whatever their own trees contain
  for (const Leaf& leaf : state.arrays) {
    const MeshImpl* whole = leaf.value->is_absent() ? nullptr : whole_of(leaf.value->impl()->type->mesh);
    mine += whole && whole->processes == 1 && whole->elsewhere ? '-' : 'x';
  }
  const std::vector<std::string> all = votes.texts(mine);
  if (all.empty()) return {};
  WhoHas who(mine.size());
  for (size_t p = 0; p < all.size(); ++p)
    for (size_t i = 0; i < std::min(mine.size(), all[p].size()); ++i)
      if (all[p][i] == 'x') who[i].push_back(static_cast<int>(p));
  return who;
}

}  // namespace tessera::nn
