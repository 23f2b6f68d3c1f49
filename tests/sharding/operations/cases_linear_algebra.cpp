// The validator's cases of products.
#include "sharding/operations/ragged/ragged_tiles.h"
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Tensors = const std::vector<at::Tensor>&;

at::Tensor of(const Shape& shape, uint64_t seed = 1) { return random_tensor(shape, seed); }

Case product(const char* name, std::vector<at::Tensor> inputs) {
  return {{"matmul"}, {name, std::move(inputs), OURS(matmul(x[0], x[1])), THEIRS(at::matmul(x[0], x[1]))}};
}

// keeps_division is false for equations with a diagonal, whose dimensions must be replicated.
Case equation(const std::string& text, std::vector<at::Tensor> inputs, bool keeps_division = false) {
  return {{"einsum"},
          {text, std::move(inputs), OURS(einsum(text, x)), THEIRS(at::einsum(text, x)), 1e-12, keeps_division}};
}

std::vector<Case> matrix_products() {
  return {
      product("matmul", {of({4, 8}), of({8, 4}, 2)}),
      product("matmul 3d x 2d", {of({4, 2, 8}), of({8, 4}, 2)}),
      product("matmul batched", {of({4, 2, 8}), of({4, 8, 4}, 2)}),
      product("matmul broadcast", {of({4, 1, 2, 4}), of({4, 4, 2}, 2)}),
      product("vector x matrix", {of({4}), of({4, 8}, 2)}),
      product("matrix x vector", {of({8, 4}), of({4}, 2)}),
      product("vector x vector", {of({8}), of({8}, 2)}),
  };
}

std::vector<Case> equations() {
  return {
      equation("ij,jk->ik", {of({4, 8}), of({8, 4}, 2)}),
      equation("ij,kj", {of({4, 8}), of({4, 8}, 2)}),
      equation("bqhd,bkhd->bhqk", {of({4, 4, 2, 2}), of({4, 2, 2, 2}, 2)}),
      equation("...d,df->...f", {of({2, 4, 8}), of({8, 4}, 2)}),
      equation("...ij,...jk->...ik", {of({4, 4, 2}), of({2, 4}, 2)}),
      equation("ij->", {of({4, 8})}),
      equation("ij->ji", {of({4, 8})}, true),
      equation("ii->i", {of({4, 4})}),
      equation("ii", {of({8, 8})}),
      equation("iji,jk->k", {of({4, 2, 4}), of({2, 4}, 2)}),
      equation("i,j->ij", {of({4}), of({8}, 2)}),
      equation("ij,ij->ij", {of({4, 8}), of({4, 8}, 2)}, true),
      equation("ij,jk,kl->il", {of({4, 2}), of({2, 8}, 2), of({8, 4}, 3)}),
      equation("ij,j->i", {of({4, 1}), of({8}, 2)}),
  };
}

std::vector<Case> other_products() {
  return {
      {{"einsum"},
       {"dot_general",
        {of({4, 2, 8}), of({8, 4, 2}, 2)},
        OURS(dot_general(x[0], x[1], {.contract = {{2}, {0}}, .batch = {{0}, {1}}})),
        THEIRS(at::einsum("abc,cad->abd", x))}},
      {{"einsum"},
       {"tensordot",
        {of({4, 2, 8}), of({2, 8, 4}, 2)},
        OURS(tensordot(x[0], x[1])),
        THEIRS(at::einsum("abc,bcd->ad", x))}},
      {{"einsum"},
       {"dot", {of({4, 8}), of({2, 8, 4}, 2)}, OURS(dot(x[0], x[1])), THEIRS(at::einsum("ab,cbd->acd", x))}},
      {{"einsum"}, {"vdot", {of({4, 8}), of({4, 8}, 2)}, OURS(vdot(x[0], x[1])), THEIRS((x[0] * x[1]).sum())}},
      {{"einsum"}, {"inner", {of({4, 8}), of({2, 8}, 2)}, OURS(inner(x[0], x[1])), THEIRS(at::matmul(x[0], x[1].t()))}},
      {{"outer"}, {"outer", {of({4}), of({8}, 2)}, OURS(outer(x[0], x[1])), THEIRS(at::outer(x[0], x[1]))}},
      {{"mul", "reshape"},
       {"outer of matrices",
        {of({4, 2}), of({2, 2}, 2)},
        OURS(outer(x[0], x[1])),
        THEIRS(at::outer(x[0].reshape({-1}), x[1].reshape({-1})))}},
  };
}

// Multiplies each row by the kernel of its group, with a mask over all groups.
at::Tensor by_mask(Tensors t) {
  const at::Tensor ends = t[2].cumsum(-1).unsqueeze(1), rows = at::arange(t[0].size(1)).view({1, -1, 1});
  const at::Tensor group = ends.le(rows).sum(-1);  // the number of groups that end before the row
  const at::Tensor mask = at::one_hot(group, t[1].size(0) + 1).narrow(-1, 0, t[1].size(0)).to(t[0].scalar_type());
  return at::einsum("brg,bri,gio->bro", {mask, t[0], t[1]});
}

std::vector<Case> ragged_products() {
  return {
      {{"ragged_dot"},
       {"ragged_dot",
        {of({2, 8, 4}), of({4, 4, 2}, 2), random_integers({2, 4}, 3, 3)},
        OURS(ragged_dot(x[0], x[1], x[2])),
        by_mask}},
      {{"ragged_mlp"},
       {"ragged_mlp",
        {of({2, 8, 4}), of({4, 4, 2}, 2), of({4, 4, 2}, 4), of({4, 2, 4}, 5), random_integers({2, 4}, 3, 3)},
        OURS(ragged_mlp(x[0], x[1], x[2], x[3], x[4])),
        [](Tensors t) {
          const at::Tensor hidden = at::silu(by_mask({t[0], t[1], t[4]})) * by_mask({t[0], t[2], t[4]});
          return by_mask({hidden, t[3], t[4]});
        }}},
      {{"ragged_mlp"},
       {"ragged_mlp with biases and a clamped gate",
        {of({2, 8, 4}), of({4, 4, 2}, 2), of({4, 4, 2}, 4), of({4, 2, 4}, 5), random_integers({2, 4}, 3, 3),
         of({4, 2}, 6), of({4, 2}, 7)},
        OURS(ragged_mlp(x[0], x[1], x[2], x[3], x[4], {.gate_bias = x[5], .up_bias = x[6], .limit = 1, .alpha = 0.6})),
        [](Tensors t) {
          const at::Tensor ones = at::ones_like(t[0]).narrow(-1, 0, 1);
          const auto through = [&](int kernels, int bias) {
            return by_mask({t[0], t[kernels], t[4]}) + by_mask({ones, t[bias].unsqueeze(1), t[4]});
          };
          const at::Tensor gate = through(1, 5).clamp_max(1), up = through(2, 6).clamp(-1, 1) + 1;
          return by_mask({up * gate * at::sigmoid(0.6 * gate), t[3], t[4]});
        }}}};
}

}  // namespace

std::vector<Case> linear_algebra_cases() {
  std::vector<Case> cases;
  for (const auto& table : {matrix_products(), equations(), other_products(), ragged_products()})
    cases.insert(cases.end(), table.begin(), table.end());
  return cases;
}

}  // namespace tessera::testing
