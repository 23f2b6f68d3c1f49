// Graphs of a few nodes, whose backward pass runs past LibTorch's engine.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "sharding/array/autograd.h"
#include "sharding/kernels/plain.h"

namespace tessera::detail {
namespace {

using torch::autograd::variable_list;

// Returns whether validate_outputs would accept this gradient as it is; validate_outputs takes longer to find out.
bool is_as_expected(const at::Tensor& gradient, const torch::autograd::Edge& edge) {
  if (!gradient.defined() || !edge.is_valid()) return true;
  const torch::autograd::InputMetadata& expected = edge.function->input_metadata(edge.input_nr);
  if (expected.is_nested_tensor() || expected.is_tensor_subclass()) return false;
  const auto sizes = c10::asIntArrayRefSlowOpt(expected.shape_as_dim_vector());
  return sizes && gradient.sizes() == *sizes && gradient.layout() == at::kStrided &&
         expected.layout() == at::kStrided && gradient.device() == expected.device() &&
         gradient.scalar_type() == expected.grad_dtype().value_or(gradient.scalar_type());
}

// A node of LibTorch's computes no more than the engine's pass, in which this thread may be, asks for. While this
// lives, it computes all.
class OutsideTheEngine {
 public:
  OutsideTheEngine() : asked_(const_cast<Asked*>(torch::autograd::get_current_graph_task_exec_info())) { swap(); }
  ~OutsideTheEngine() { swap(); }
  OutsideTheEngine(const OutsideTheEngine&) = delete;
  OutsideTheEngine& operator=(const OutsideTheEngine&) = delete;

 private:
  using Asked =
      std::remove_const_t<std::remove_pointer_t<decltype(torch::autograd::get_current_graph_task_exec_info())>>;

  void swap() {
    if (asked_) asked_->swap(none_);
  }

  Asked* asked_;
  Asked none_;
};

// A graph of a few nodes between stand-ins and outputs.
class SmallGraph {
 public:
  SmallGraph(const Tensors& stand_ins, const Tensors& outputs)
      : beginning_(torch::autograd::impl::gradient_edge(stand_ins[0])), inputs_(stand_ins.size()) {
    for (const at::Tensor& output : outputs) outputs_.push_back(torch::autograd::impl::gradient_edge(output));
  }

  Tensors backward(const Tensors& gradients) const {
    const OutsideTheEngine alone;
    Pass pass{*this, Tensors(inputs_)};
    for (const torch::autograd::Edge& edge : outputs_) pass.expect(edge);
    for (size_t i = 0; i < outputs_.size(); ++i) pass.deliver(outputs_[i], gradients[i]);
    for (size_t next = 0; next < pass.ready.size(); ++next) pass.run(*pass.ready[next]);
    return std::move(pass.results);
  }

 private:
  using Node = torch::autograd::Node;

  // A node whose gradients are on their way: from so many edges more.
  struct PendingNode {
    Node* node;
    int missing = 0;
    variable_list gradients;
  };

  struct Pass {
    const SmallGraph& graph;
    Tensors results;
    std::vector<std::unique_ptr<PendingNode>> nodes = {};
    std::vector<PendingNode*> ready = {};

    bool ends(const torch::autograd::Edge& edge) const { return edge.function == graph.beginning_.function; }
    PendingNode* known(const Node* node) const {
      for (const auto& waiting : nodes)
        if (waiting->node == node) return waiting.get();
      return nullptr;
    }

    void expect(const torch::autograd::Edge& edge) {
      if (!edge.is_valid() || ends(edge)) return;
      PendingNode* waiting = known(edge.function.get());
      if (!waiting) {
        Node* node = edge.function.get();
        waiting = nodes.emplace_back(new PendingNode{node, 0, variable_list(node->num_inputs())}).get();
        for (const torch::autograd::Edge& next : node->next_edges()) expect(next);
      }
      ++waiting->missing;
    }

    void deliver(const torch::autograd::Edge& edge, const at::Tensor& gradient) {
      if (!edge.is_valid()) return;
      if (ends(edge)) return add(results[edge.input_nr], gradient);
      PendingNode* waiting = known(edge.function.get());
      add(waiting->gradients[edge.input_nr], gradient);
      if (--waiting->missing == 0) ready.push_back(waiting);
    }

    static void add(at::Tensor& sum, const at::Tensor& gradient) {
      if (gradient.defined()) sum = sum.defined() ? sum + gradient : gradient;
    }

    void run(PendingNode& waiting) {
      Node& node = *waiting.node;
      variable_list gradients(node.num_outputs());
      const auto is_defined = [](const at::Tensor& t) { return t.defined(); };
      if (std::any_of(waiting.gradients.begin(), waiting.gradients.end(), is_defined)) {
        gradients = node(std::move(waiting.gradients));
        if (!std::equal(gradients.begin(), gradients.end(), node.next_edges().begin(), node.next_edges().end(),
                        is_as_expected))
          torch::autograd::validate_outputs(node.next_edges(), gradients,
                                            [&](const std::string& words) { return node.name() + ": " + words; });
      }
      for (size_t i = 0; i < gradients.size(); ++i) deliver(node.next_edge(i), gradients[i]);
    }
  };

  torch::autograd::Edge beginning_;
  size_t inputs_;
  torch::autograd::edge_list outputs_;
};

// The plain twin: the same by LibTorch's engine. It holds edges alone, because a tensor would keep its storage.
class EngineGraph {
 public:
  EngineGraph(const Tensors& stand_ins, const Tensors& outputs) {
    for (const at::Tensor& t : stand_ins) inputs_.push_back(torch::autograd::impl::gradient_edge(t));
    for (const at::Tensor& t : outputs) outputs_.push_back(torch::autograd::impl::gradient_edge(t));
  }

  Tensors backward(const Tensors& gradients) const {
    torch::autograd::edge_list roots;
    variable_list seeds;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(outputs_[i]);
      seeds.push_back(gradients[i]);
    }
    if (roots.empty()) return Tensors(inputs_.size());
    const variable_list result = torch::autograd::Engine::get_default_engine().execute(
        roots, seeds, /*keep_graph=*/true, /*create_graph=*/false, /*accumulate_grad=*/false, inputs_);
    return Tensors(result.begin(), result.end());
  }

 private:
  torch::autograd::edge_list inputs_, outputs_;
};

template <class Graph>
Backward backward_by(const Tensors& stand_ins, const Tensors& outputs) {
  return [graph = std::make_shared<const Graph>(stand_ins, outputs)](const Tensors& gradients) {
    return graph->backward(gradients);
  };
}

}  // namespace

Backward backward_of(const Tensors& stand_ins, const Tensors& outputs) {
  return uses_plain(Kernel::small_graphs) ? backward_by<EngineGraph>(stand_ins, outputs)
                                          : backward_by<SmallGraph>(stand_ins, outputs);
}

}  // namespace tessera::detail
