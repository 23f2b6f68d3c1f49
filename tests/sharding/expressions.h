// Expressions as functions: OURS of arrays x, THEIRS of LibTorch's tensors x, BOTH of either, and CALL of nothing.
#pragma once

#define OURS(...) [=](const std::vector<tessera::Array>& x) { return __VA_ARGS__; }
#define THEIRS(...) [=](const std::vector<at::Tensor>& x) { return __VA_ARGS__; }
#define BOTH(...) OURS(__VA_ARGS__), THEIRS(__VA_ARGS__)
// What is to be done later, and mostly to be refused.
#define CALL(...) [&] { __VA_ARGS__; }
