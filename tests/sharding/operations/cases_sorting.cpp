// The validator's cases of sorting and selection.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Arrays = const std::vector<Array>&;
using Values = const std::vector<at::Tensor>&;

void add_sorts(std::vector<Case>& cases, const at::Tensor& x) {
  for (const int dim : {0, -1})
    for (const bool descending : {false, true}) {
      const std::string how = fmt::format(" along {}{}", dim, descending ? ", descending" : "");
      cases.push_back({{"sort"},
                       {"sort" + how,
                        {x},
                        OURS(sort(x[0], dim, descending)),
                        THEIRS(std::get<0>(at::sort(x[0], true, dim, descending))),
                        1e-12,
                        true}});
      cases.push_back({{"argsort"},
                       {"argsort" + how,
                        {x},
                        OURS(x[0] * astype(argsort(x[0], dim, descending), float64)),
                        THEIRS(x[0] * at::argsort(x[0].detach(), true, dim, descending).to(at::kDouble))}});
    }
}

// k = 1 selects among the candidates of all blocks; k = 5 gathers the dimension.
void add_selections(std::vector<Case>& cases, const at::Tensor& x) {
  for (const int k : {1, 2, 5}) {
    const auto sorted = [=](const at::Tensor& t) { return at::sort(t, true, -1, true); };
    cases.push_back({{"top_k", "top_k_of_blocks", "top_k_of_candidates"},
                     {fmt::format("the values of top_k({})", k),
                      {x},
                      OURS(top_k(x[0], k).values),
                      THEIRS(std::get<0>(sorted(x[0])).narrow(-1, 0, k))}});
    cases.push_back({{"top_k", "top_k_of_blocks", "top_k_of_candidates"},
                     {fmt::format("the indices of top_k({})", k),
                      {x},
                      [=](Arrays a) {
                        const TopK best = top_k(a[0], k);
                        return best.values * astype(best.indices, float64);
                      },
                      [=](Values a) {
                        const auto [values, indices] = sorted(a[0]);
                        return values.narrow(-1, 0, k) * indices.narrow(-1, 0, k).to(at::kDouble);
                      }}});
  }
}

}  // namespace

std::vector<Case> ordering_cases() {
  std::vector<Case> cases;
  add_sorts(cases, random_integers({8, 4, 8}, 5, 1).to(at::kDouble));
  add_selections(cases, random_integers({4, 16}, 9, 2).to(at::kDouble));
  return cases;
}

}  // namespace tessera::testing
