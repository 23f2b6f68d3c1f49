// An example program. To debug a failing program, replace this file with the output of `programs`.
#include "tests/programs/reproduce.h"

int main() {
  const Mesh mesh = make_mesh({{"a", 2}}, {.private_replicas = false});
  const std::vector<Leaf> leaves = {
      {Leaf::parameter, value<double>({1, 2, 3, 4}, {2, 2}), {}, P{{"a"}}, 0},
      {Leaf::input, value<double>({1, 0, 0, 1}, {2, 2}), {}, std::nullopt, 0},
  };
  const auto f = [=](const List& x) -> List {
    const List v1 = remat([=](const List& x2) -> List { return {sin(x2[0]) * x2[1]}; }, {x[0], x[1]},
                          RematPolicy::nothing_saveable);
    return {v1[0]};
  };
  show(mesh, leaves, f, {1}, {});
}
