// CUDA with every call checked.
#pragma once

#include <cuda_runtime.h>

namespace atlasc::ckks {

/// Throws Error with the name of the call unless it succeeded.
void check(cudaError_t status, const char* call);

/// One for all threads: what one thread lets go, another one may be given while it is still read. And
/// Phantom allocates on it. A thread that captures (graph.hpp) has another one.
cudaStream_t stream();

}  // namespace atlasc::ckks
