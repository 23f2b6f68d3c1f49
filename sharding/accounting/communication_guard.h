// Scopes in which a communication that nobody asked for is an error, or in which bytes are limited.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

// What a scope allows all the same.
struct CommunicationGuardOptions {
  std::vector<std::string> mesh_axes = {};  // communication over no other mesh axes than these
  bool backward = false;               // what the backward pass moves, and reductions of parameters' gradients
};

// The scope of forbid_implicit_communication and allow_implicit_communication: until it is destroyed.
class CommunicationGuard {
 public:
  ~CommunicationGuard();
  CommunicationGuard(CommunicationGuard&&) noexcept;
  CommunicationGuard& operator=(CommunicationGuard&&) = delete;

 private:
  friend CommunicationGuard forbid_implicit_communication(CommunicationGuardOptions);
  friend CommunicationGuard allow_implicit_communication();
  class Watch;
  explicit CommunicationGuard(std::unique_ptr<Watch> watch);
  std::unique_ptr<Watch> watch_;
};

// While the guard lives, a collective of this thread that the user did not ask for is an Error (forbidden), thrown
// before any of its data moves. It names the line, the operation, the operand, the reason and what to do.
//   const auto guard = forbid_implicit_communication({.backward = true});
//   auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
// Asked for are device_put, with_sharding_constraint, redistribute and the like, the collectives inside a shard_map,
// and the reading of a value, which includes the loss that value_and_grad returns. What moves nothing is never
// forbidden. Of nested scopes the innermost counts, as in JAX's transfer_guard.
[[nodiscard]] CommunicationGuard forbid_implicit_communication(CommunicationGuardOptions allowed = {});
// Lifts, while it lives, what an outer scope forbids.
[[nodiscard]] CommunicationGuard allow_implicit_communication();

struct CommBudgetOptions {
  bool throw_on_exceed = false;  // an Error (forbidden), before the collective that would be too much
  std::function<void(const std::string&)> report = {};  // where the warning goes; by default a line on std::clog
};

// How many bytes a device may receive inside a scope, by the ledger's count. The first collective that passes the
// budget is reported, with the lines that moved most:
//   [CommBudget] 5,242,880 bytes a device, 1,048,576 allowed: 4,194,304 at model.cpp:31 (all_gather over data for
//   matmul), 1,048,576 at ...
// A warning comes once. Nested budgets all count; if several throw, a collective that one of them prevents is counted
// by none.
class CommBudget {
 public:
  // Error (invalid_argument): bytes < 0.
  explicit CommBudget(int64_t bytes, CommBudgetOptions options = {});
  ~CommBudget();
  CommBudget(const CommBudget&) = delete;
  CommBudget& operator=(const CommBudget&) = delete;

  int64_t bytes() const;  // so far

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace tessera
