// CUDA with every call checked.
#pragma once

#include <cuda_runtime.h>

namespace atlasc::ckks {

/// Throws Error with the name of the call unless it succeeded.
void check(cudaError_t status, const char* call);

/// The one stream: Phantom allocates on it, so everything else has to run on it too.
cudaStream_t stream();

}  // namespace atlasc::ckks
